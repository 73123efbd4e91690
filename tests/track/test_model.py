"""The model that is logged: its signature, and the code beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from pliant.registry import find_pipeline
from pliant.track.model import _code, _signature


class Scores(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: torch.Tensor | None = None) -> torch.Tensor:
        return x.sum(-1) * (1 if scale is None else scale)


class Named(nn.Module):
    def forward(self, *, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left + right


class Calls:
    """A pipeline's loss, as far as a signature needs it."""

    def __init__(self, call: str) -> None:
        self._call = call

    def loss(self, model: nn.Module, batch: dict[str, torch.Tensor]) -> None:
        if self._call == "one":
            model(batch["a"])
        elif self._call == "named":
            model(left=batch["a"], right=batch["b"])
        elif self._call == "mixed":
            model(batch["a"], scale=batch["b"][:, 0])


BATCH = {"a": torch.ones(3, 2), "b": torch.ones(3, 2, dtype=torch.float64)}


def test_a_model_of_one_tensor_has_an_array() -> None:
    inputs, outputs = _signature(Calls("one"), Scores(), BATCH)
    assert (inputs.shape, inputs.dtype, outputs.shape) == ((3, 2), "float32", (3,))


def test_a_model_of_named_tensors_has_arrays_by_name() -> None:
    inputs, outputs = _signature(Calls("named"), Named(), BATCH)
    assert {name: str(array.dtype) for name, array in inputs.items()} == {"left": "float32", "right": "float64"}
    assert outputs.shape == (3, 2)


@pytest.mark.parametrize("call", ["mixed", "none"])
def test_where_it_cannot_be_told_the_batch_stands_for_the_inputs(call: str) -> None:
    inputs, _ = _signature(Calls(call), Scores(), BATCH)
    assert set(inputs) == {"a", "b"}


def test_the_code_beside_a_model_is_what_the_pipeline_imports_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    (folder / "layers").mkdir(parents=True)
    (folder / "layers" / "__init__.py").write_text("")
    (folder / "layers" / "wide.py").write_text("from torch import nn\nclass Wide(nn.Module): ...\n")
    (folder / "unused.py").write_text("")
    (folder / "ownlm.py").write_text(
        "from layers.wide import Wide\nfrom pliant.train.protocols import Pipeline\n"
        "class pipeline(Pipeline):\n    def model(self): return Wide()\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    ref = find_pipeline(str(folder / "ownlm.py"))
    ref.load()
    try:
        target = tmp_path / "code"
        target.mkdir()
        top = _code(ref, target)
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
    found = {str(file.relative_to(target)) for file in target.rglob("*.py")}
    assert found == {"ownlm.py", "layers/__init__.py", "layers/wide.py"}
    assert [path.name for path in top] == ["layers", "ownlm.py"]

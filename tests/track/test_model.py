"""The model that is logged: its signature, and the code beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import mlflow.pytorch
import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from torch import nn

from pliant.registry import find_pipeline
from pliant.track.mlflow import MlflowTracker
from pliant.track.model import _code, _signature
from pliant.track.tracker import Card, TrainedModel


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


def test_a_model_whose_upload_was_cut_off_gives_way_to_the_next_and_a_later_one_wins(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker = MlflowTracker(uri, str(tmp_path))
    run_id = tracker.create(Card("identity", "run", "experiment", 0))
    tracker.attach(run_id)
    experiment = MlflowClient(tracking_uri=uri).get_run(run_id).info.experiment_id

    def models() -> list[str]:
        return [str(m.status) for m in MlflowClient(tracking_uri=uri).search_logged_models([experiment])]

    def trained(weight: float) -> TrainedModel:
        module = nn.Linear(2, 1, bias=False)
        nn.init.constant_(module.weight, weight)
        return TrainedModel(module, np.ones((3, 2), np.float32), np.ones((3, 1), np.float32), (), 7, {"a": "b"})

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_model_artifacts", lambda *_: (_ for _ in ()).throw(ConnectionError("cut off")))
        with pytest.raises(ConnectionError):
            tracker.add_model(trained(1.0))
    assert models() == ["PENDING"]
    tracker.add_model(trained(2.0))
    assert models() == ["READY"]
    tracker.add_model(trained(3.0))
    assert capfd.readouterr() == ("", "")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    loaded = mlflow.pytorch.load_model(f"runs:/{run_id}/model")
    assert loaded(torch.ones(1, 2)).item() == 6.0
    signature = mlflow.models.get_model_info(f"runs:/{run_id}/model").signature
    assert signature.inputs.to_dict()[0]["tensor-spec"] == {"dtype": "float32", "shape": (-1, 2)}

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
from tests.command import python


class Scores(nn.Module):
    def forward(self, x: torch.Tensor, *, scale: torch.Tensor | None = None) -> torch.Tensor:
        return x.sum(-1) * (1 if scale is None else scale)


class Named(nn.Module):
    def forward(self, *, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left + right


class Whole(nn.Module):
    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return batch["a"]


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
        elif self._call == "whole":
            model(batch)


BATCH = {"a": torch.ones(3, 2), "b": torch.ones(3, 2, dtype=torch.float64)}


def test_a_model_of_one_tensor_has_an_array() -> None:
    inputs, outputs = _signature(Calls("one"), Scores(), BATCH)
    assert (inputs.shape, inputs.dtype, outputs.shape) == ((3, 2), "float32", (3,))


def test_a_model_of_named_tensors_has_arrays_by_name() -> None:
    inputs, outputs = _signature(Calls("named"), Named(), BATCH)
    assert {name: str(array.dtype) for name, array in inputs.items()} == {"left": "float32", "right": "float64"}
    assert outputs.shape == (3, 2)


def test_arguments_have_the_names_that_forward_gives_them_however_they_are_passed() -> None:
    inputs, outputs = _signature(Calls("mixed"), Scores(), BATCH | {"label": torch.ones(3)})
    assert {name: array.shape for name, array in inputs.items()} == {"x": (3, 2), "scale": (3,)}
    assert outputs.shape == (3,)


def test_a_model_of_a_batch_has_its_tensors() -> None:
    inputs, _ = _signature(Calls("whole"), Whole(), BATCH)
    assert set(inputs) == {"a", "b"}


def test_a_model_that_the_loss_does_not_call_has_no_signature() -> None:
    assert _signature(Calls("none"), Scores(), BATCH) == (None, None)


TWO_INPUTS = """
import torch
from pliant.train.protocols import Loss, Pipeline
from torch import nn

class Two(nn.Module):
    def forward(self, numbers, slots):
        return numbers.sum(1) + slots[:, 0]

class pipeline(Pipeline):
    def model(self):
        return Two()

    def loss(self, model, batch):
        total = (model(batch["n"], slots=batch["s"]) - batch["label"]).sum()
        return Loss(total, torch.tensor(float(len(batch["n"]))))
"""
LOAD = """
import sys, mlflow, numpy
mlflow.set_tracking_uri(sys.argv[1])
uri = f"runs:/{sys.argv[2]}/model"
spec = mlflow.models.get_model_info(uri).signature.inputs
batch = {s.name: numpy.ones([2, *s.shape[1:]], s.type) for s in spec}
import torch
print(mlflow.pytorch.load_model(uri)(**{name: torch.from_numpy(a) for name, a in batch.items()}).tolist())
try:
    mlflow.pyfunc.load_model(uri).predict(batch)
except Exception as error:
    print(error)
"""


def test_in_a_process_of_its_own_a_model_of_two_inputs_takes_what_its_signature_says(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "twoinputs.py").write_text(TWO_INPUTS)
    (tmp_path / "code").mkdir()
    monkeypatch.setattr(sys, "path", list(sys.path))
    ref = find_pipeline(str(tmp_path / "twoinputs.py"))
    try:
        pipeline = ref.load()(ref.model_settings()())
        module = pipeline.model()
        batch = {"n": torch.ones(3, 4), "s": torch.ones(3, 2, dtype=torch.int64), "label": torch.ones(3)}
        inputs, outputs = _signature(pipeline, module, batch)
        tracker = MlflowTracker(uri, str(tmp_path))
        tracker.attach(run_id := tracker.create(Card("identity", "run", "experiment", 0)))
        tracker.add_model(TrainedModel(module, inputs, outputs, _code(ref, tmp_path / "code"), 7, {}))
    finally:
        sys.modules.pop("twoinputs", None)
    done = python("-c", LOAD, uri, run_id, cwd=Path("/"))
    assert done.returncode == 0, done.stderr
    loaded, refusal = done.stdout.splitlines()
    assert loaded == "[5.0, 5.0]"
    assert "does not support List or Dict" in refusal, "docs/mlflow.md says so"


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
    served = mlflow.pyfunc.load_model(f"runs:/{run_id}/model").predict(np.ones((1, 2), np.float32))
    assert served.tolist() == [[6.0]]


def test_a_model_is_registered_once_and_the_alias_stays_with_the_newest(uri: str, tmp_path: Path) -> None:
    older, newer = MlflowTracker(uri, str(tmp_path)), MlflowTracker(uri, str(tmp_path))
    for number, tracker in enumerate((older, newer)):
        tracker.attach(tracker.create(Card(f"run{number}", "run", "experiment", 0)))
        metadata = {"pliant.checkpoint": f"step-{number}"}
        tracker.add_model(TrainedModel(nn.Linear(2, 1), np.ones((1, 2), "float32"), None, [], 7, metadata))
    found = [
        older.register("net", "best", {"pliant.lr": "0.1"}),
        newer.register("net", "best", {}),
        older.register("net", "best", {"pliant.lr": "0.1"}),
        newer.register("net", "best", {}),
    ]
    assert found == [1, 2, 1, 2]
    client = MlflowClient(tracking_uri=uri)
    assert client.get_model_version_by_alias("net", "best").version == 2
    first = client.get_model_version("net", "1")
    assert first.tags.items() >= {"pliant.checkpoint": "step-0", "pliant.lr": "0.1"}.items()
    newer.add_model(TrainedModel(nn.Linear(2, 1), np.ones((1, 2), "float32"), None, [], 3, {}))
    assert newer.register("net", "best", {}) == 3, "a better model may come from fewer steps"

"""What a pipeline's own code raises: the user's lines, rank, step and rows, and nothing of Pliant's."""

from __future__ import annotations

import json
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from pliant.cli.main import main
from pliant.data.manifest import load_or_build_manifest
from pliant.data.order import EpochOrder
from pliant.data.places import RowPlace, RowPlaces
from pliant.data.plan import Share
from pliant.errors import ConfigError, UserCodeError
from pliant.train import driver
from pliant.train.usercode import describe_rows, user_code
from tests.train.pipelines.masked import ROWS, table
from tests.train.runs import SETTINGS, Run

BAD_FILE, BAD_ROW = "part-00001.parquet", 7
"""The row over which the pipeline fails: row 67 of the dataset, in shards of 60 rows."""
BAD_TOKENS = table(ROWS, 1).column("tokens")[67].as_py()
SOURCE = f"""
import os

import torch

from tests.train.pipelines import masked
from tests.train.pipelines.masked_settings import ModelSettings

FAIL = os.environ["FAIL"]


def look(tokens, where):
    if FAIL == where and {BAD_TOKENS} in tokens.tolist():
        raise KeyError("no such word")


class Explode(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if FAIL == "gradient":
            return grad * float("nan")
        raise ArithmeticError("in backward")


class Net(masked.Net):
    def __init__(self, settings):
        super().__init__(settings)
        if FAIL == "gradient":
            self.embedding.register_forward_hook(lambda module, inputs, output: Explode.apply(output))

    def forward(self, tokens):
        look(tokens, "forward")
        return super().forward(tokens)


class Failing(masked.Masked):
    def model(self):
        if FAIL == "model":
            raise OSError("no weights")
        return Net(self.settings)

    def collate(self, rows):
        batch = super().collate(rows)
        look(batch["tokens"], "collate")
        return None if FAIL == "nothing" else batch

    def loss(self, model, batch):
        loss = super().loss(model, batch)
        if FAIL == "nan" and {BAD_TOKENS} in batch["tokens"].tolist():
            return masked.Loss(loss.total * float("nan"), loss.weight, loss.sums)
        if FAIL == "backward" and {BAD_TOKENS} in batch["tokens"].tolist():
            return masked.Loss(Explode.apply(loss.total), loss.weight, loss.sums)
        return loss

    def summarize(self, values):
        return {{}}["x"] if FAIL == "summarize" else values


pipeline = Failing
"""
NOT_THE_USERS = re.compile(r"platform/pliant|site-packages|frozen")


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    modules, path = set(sys.modules), list(sys.path)
    (tmp_path / "failing.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path / "failing.py"
    sys.path[:] = path
    for name in {"failing", "failing_settings"} & (set(sys.modules) - modules):
        del sys.modules[name]


def train(pipeline: Path, dataset: str, *more: str) -> int:
    given = [*(text for text in SETTINGS if not text.startswith("train.audit")), *more]
    settings = list({text.partition("=")[0]: text for text in given}.values())
    return main(["train", str(pipeline), "--name", "run", "--in-process", f"data.path={dataset}", *settings])


@pytest.mark.parametrize(
    ("where", "frames", "says"),
    [
        ("collate", ["in collate", "in look"], "collate raised KeyError: 'no such word'"),
        ("forward", ["in loss", "in loss", "in forward", "in look"], "loss raised KeyError: 'no such word'"),
        ("backward", ["in backward"], "backward of the loss raised ArithmeticError: in backward"),
    ],
)
def test_an_error_over_a_row_names_it(
    where: str,
    frames: list[str],
    says: str,
    pipeline: Path,
    dataset: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FAIL", where)
    assert train(pipeline, dataset) == 1
    shown = capsys.readouterr().err
    assert re.findall(r'^  File ".+", line \d+, (in \w+)$', shown, flags=re.MULTILINE) == frames
    assert f'  File "{pipeline}", line ' in shown
    assert NOT_THE_USERS.search(shown) is None
    found = re.search(
        rf"^error\[pipeline\.raised\] rank 0, step (\d+)  {re.escape(says)}\n  its (\d) rows: (.+)\n  mend",
        shown,
        flags=re.MULTILINE,
    )
    assert found is not None, shown
    rows = [(part.split()[0], int(row)) for part in found[3].split("; ") for row in part.partition(" ")[2].split(", ")]
    assert (BAD_FILE, BAD_ROW) in rows
    assert len(rows) == int(found[2]) <= 3
    run = Run(_store("run"), "run")
    assert [entry["step"] for entry in run.log("metrics")] == list(range(1, int(found[1])))
    assert shown.count("pliant resume") == 1
    assert "once its code is mended, resume with: pliant resume run --accept-code\n" in shown


def test_a_loss_that_is_not_finite_names_its_rows(
    pipeline: Path, dataset: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIL", "nan")
    assert train(pipeline, dataset) == 1
    shown = capsys.readouterr().err
    found = re.search(
        r"error\[train\.not-finite\] rank 0, step (\d+)  loss sum nan, gradient norm nan; training cannot go on\n"
        rf"  its \d rows: .*{BAD_FILE} (?:\d+, )*{BAD_ROW}\b.*\n  (.+)",
        shown,
    )
    assert found is not None, shown
    assert found[2].startswith("no update has been made yet" if found[1] == "1" else "lower optim.lr")


def test_a_gradient_that_is_not_finite_names_its_parameters(
    pipeline: Path, dataset: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIL", "gradient")
    assert train(pipeline, dataset) == 1
    shown = capsys.readouterr().err
    assert re.search(
        r"error\[train\.not-finite\] step 1  loss sum [\d.]+, gradient norm nan; training cannot go on\n"
        r"  the loss of every micro-batch is finite; not finite are the gradients of:\n"
        r"  embedding\.weight\n"
        r"  no update has been made yet, so that optim\.lr is not at fault",
        shown,
    ), shown


def _store(name: str) -> object:
    from pliant.storage.settings import StorageSettings
    from pliant.storage.store import Store

    return Store(str(Path("runs", name).absolute()), StorageSettings())


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("model", "error[pipeline.raised] model raised OSError: no weights\n"),
        ("nothing", "  collate must return a dict of tensors; found NoneType\n"),
        ("summarize", "error[pipeline.raised] summarize raised KeyError: 'x'\n"),
    ],
)
def test_errors_that_are_about_no_row(
    where: str,
    says: str,
    pipeline: Path,
    dataset: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FAIL", where)
    assert train(pipeline, dataset, "train.steps=2", "schedule.warmup=0") == 1
    shown = capsys.readouterr().err
    assert says in shown
    assert NOT_THE_USERS.search(shown) is None


def test_debug_shows_everything_and_json_the_users_frames(
    pipeline: Path, dataset: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FAIL", "collate")
    assert train(pipeline, dataset, "--debug") == 1
    assert "platform/pliant/train/feed.py" in capsys.readouterr().err
    assert main(["resume", "run", "--in-process", "--json"]) == 1
    shown = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert shown["error"]["code"] == "pipeline.raised"
    assert "in look" in shown["traceback"]


@pytest.mark.ray
@pytest.mark.slow
def test_an_error_in_one_of_two_ray_workers_says_the_same(
    ray_cluster: None, pipeline: Path, dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pliant.train.worker import RemoteBoard, run_workers

    # The workers are forked from a cluster that is older than this test: its environment is not theirs.
    pipeline.write_text(SOURCE.replace('os.environ["FAIL"]', '"forward"'))
    settings = ["data.reader=ray", "elastic.max_workers=2", "elastic.resources_per_worker={CPU: 0.5}"]
    launch, attempt = Run.begin("runs", dataset, *settings, pipeline=str(pipeline)).record_start()
    spec = driver.work_spec(launch, attempt)
    with pytest.raises(UserCodeError) as caught:
        run_workers(launch.config, spec, lanes=8, board=RemoteBoard.start())
    error = caught.value
    assert re.fullmatch(r"rank [01], step \d+", error.location)
    assert re.search(rf"its \d rows: .*{BAD_FILE} (\d+, )*{BAD_ROW}\b", error.message)
    assert error.frames.count("  File ") == 4
    assert f'  File "{pipeline}", line ' in error.frames
    assert error.frames.endswith("KeyError: 'no such word'\n")
    assert NOT_THE_USERS.search(error.frames) is None


def test_frames_cross_processes_and_are_those_of_the_cause() -> None:
    with pytest.raises(UserCodeError) as caught, user_code("model", place="here"):
        {}["x"]
    error = caught.value
    again = pickle.loads(pickle.dumps(error))
    assert again.frames == error.frames != ""
    assert (str(again), again.exit_code) == (str(error), 1)
    assert str(error).startswith("error[pipeline.raised] here  model raised KeyError: 'x'\n")
    bare = pickle.loads(pickle.dumps(UserCodeError("a.b", "m")))
    bare.__cause__ = error
    assert bare.frames == "", "what it was raised from in another process is no code of the user's"


def test_other_errors_pass_and_memory_has_its_own_hint() -> None:
    with pytest.raises(ConfigError), user_code("loss"):
        raise ConfigError("a.b", "m")
    with pytest.raises(RuntimeError, match="gloo"), user_code("loss"):
        raise RuntimeError("[/x/gloo/transport] Connection closed by peer")
    with pytest.raises(UserCodeError) as caught, user_code("loss"):
        raise torch.OutOfMemoryError("too much")
    assert caught.value.hint.startswith("lower train.micro_batch")


def test_rows_are_described_by_file_and_twenty_at_most() -> None:
    assert describe_rows([RowPlace("b", 4), RowPlace("a", 7), RowPlace("a", 2)]) == "its 3 rows: a 2, 7; b 4"
    assert describe_rows([RowPlace("a", i) for i in range(23)]).endswith("18, 19; and 3 more")
    assert describe_rows([]).startswith("it has no rows")


@pytest.mark.parametrize("shuffle", [True, False])
def test_places_of_a_lane_are_each_row_once(dataset: str, shuffle: bool) -> None:
    manifest = load_or_build_manifest(f"{dataset}/train")
    order = EpochOrder(manifest.group_rows, seed=3, epoch=1, lanes=4, window=2, shuffle=shuffle)
    places = RowPlaces(manifest)
    found = [p for lane in range(4) for p in places.of_share(order, Share(1, lane, 0, order.lane_rows(lane)))]
    assert sorted(found) == [RowPlace(f"part-{i // 60:05d}.parquet", i % 60) for i in range(ROWS)]
    assert (found == sorted(found)) is not shuffle
    lane = list(places.of_share(order, Share(1, 2, 0, 40)))
    assert list(places.of_share(order, Share(1, 2, 9, 31))) == lane[9:31]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return [1 / 0]", "prepare raised ZeroDivisionError: division by zero"),
        ("yield 5", "prepare must yield Split; found int"),
        ("yield masked.Split('train', masked.SCHEMA, (1 / 0 for _ in 'x'))", "prepare raised ZeroDivisionError"),
    ],
)
def test_errors_of_prepare(
    body: str, says: str, tmp_path: Path, pipeline: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = f"\n\nclass Bad(Failing):\n    def prepare(self):\n        {body}\n\n\npipeline = Bad\n"
    pipeline.write_text(SOURCE.replace('os.environ["FAIL"]', '""') + source)
    given = [text for text in SETTINGS if not text.startswith("data.")]
    assert main(["prepare", str(pipeline), f"data.path={tmp_path}/data", "data.lanes=8", *given]) == 1
    shown = capsys.readouterr().err
    assert f"error[pipeline.prepare] {pipeline}  {says}" in shown
    assert NOT_THE_USERS.search(shown) is None
    assert ("Traceback" in shown) is ("raised" in says)


def test_a_baseline_that_fails_leaves_the_run_done(
    pipeline: Path, dataset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "\n\nclass Bad(Failing):\n    def baseline(self, *paths):\n        return {}[0]\n\n\npipeline = Bad\n"
    pipeline.write_text(SOURCE.replace('os.environ["FAIL"]', '""') + source)
    assert train(pipeline, dataset, "train.steps=2", "schedule.warmup=0") == 0
    shown = capsys.readouterr().err
    assert "baseline raised KeyError: 0" in shown
    assert "done: step 2 of 2" in shown

"""``init.from``: a new run begins with the parameters of a run, of a checkpoint or of a safetensors file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pliant.checkpoint.digest import named_shards, parameter_digest
from pliant.checkpoint.initial import SafetensorsSource, load_parameters
from pliant.config.loader import DEFAULT
from pliant.configure import load_config
from pliant.errors import ConfigError, DamageError
from pliant.registry import find_pipeline
from pliant.train.initial import Initial, settle_initial
from pliant.train.launch import resumed_run
from tests.checkpoint.saving import flip
from tests.train.pipelines.masked import Masked
from tests.train.pipelines.masked_settings import ModelSettings
from tests.train.runs import PIPELINE, Run

SHORT = ["train.steps=2", "schedule.warmup=0"]


def start_event(run: Run) -> dict[str, object]:
    return run.events("start")[0]


def first_digest(run: Run) -> str:
    """Digest of the parameters that a run began with: its learning rate is nothing in float32."""
    return str(run.log("metrics")[0]["digest"])


STILL = ["optim.lr=1e-60", "optim.weight_decay=0", *SHORT]


def model(seed: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return Masked(ModelSettings()).model()


def own_tensors(net: nn.Module) -> dict[str, Tensor]:
    """The state as a safetensors file holds it: a tied parameter once."""
    return {name: value.clone() for name, value in net.state_dict().items() if name != "head.weight"}


def test_a_run_begins_with_a_runs_best_checkpoint(whole: Run, dataset: str, tmp_path: Path) -> None:
    best = min(whole.log("evaluations"), key=lambda entry: entry["loss"])["step"]
    checkpoints = {ref.step: ref for ref in whole.record.view().checkpoints()}
    expected = checkpoints.get(best) or checkpoints[max(checkpoints)]
    run = Run.begin(str(tmp_path), dataset, f"init.from={whole.store.uri}", *STILL)
    run.attempt(3)
    place = f"{whole.store.uri}/{expected.prefix}"
    digest = {entry["step"]: entry["digest"] for entry in whole.log("metrics")}[expected.step]
    assert first_digest(run) == digest
    identity = run.record.identity["init"]
    assert identity == {"place": place, "digest": digest, "text": f"step {expected.step} of the run run"}
    event = start_event(run)
    assert event["init"] == identity
    assert f"from the beginning, with the parameters of step {expected.step}" in str(event["text"])


def test_a_checkpoint_by_its_path_and_a_resume_that_begins_again(whole: Run, dataset: str, tmp_path: Path) -> None:
    oldest = whole.record.view().checkpoints()[-1]
    run = Run.begin(str(tmp_path), dataset, f"init.from={whole.store.uri}/{oldest.prefix}", *STILL)
    run.record_start()  # a driver that ended before its workers began: the next one begins with the same parameters
    run.attempt(2)
    digest = {entry["step"]: entry["digest"] for entry in whole.log("metrics")}[oldest.step]
    assert first_digest(run) == digest
    launch = resumed_run(run.store, ["train.steps=3"], take_over=True, in_process=True)
    assert launch.config.init.from_ == f"{whole.store.uri}/{oldest.prefix}"
    assert launch.origins["init.from"] == f"derived: step {oldest.step} of the run run"
    with pytest.raises(ConfigError, match=r"init\.from is frozen.*\n?.*it decides where the parameters started"):
        resumed_run(run.store, ["init.from=other"], take_over=True, in_process=True)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_begins_with_a_safetensors_file(workers: int, dataset: str, tmp_path: Path) -> None:
    net, file = model(), tmp_path / "net.safetensors"
    save_file(own_tensors(net), file)
    run = Run.begin(str(tmp_path / "runs"), dataset, f"init.from={file}", *STILL)
    run.attempt(workers)
    assert first_digest(run) == parameter_digest(named_shards(net), None)
    assert start_event(run)["init"] == {
        "place": str(file),
        "digest": settle_initial(run_config(dataset, f"init.from={file}")).digest,  # type: ignore[union-attr]
        "text": f"the file {file}",
    }


def test_a_source_in_any_storage(storage: str, dataset: str, tmp_path: Path) -> None:
    source = Run.begin(storage, dataset, *SHORT, name="source")
    source.attempt(1)
    (newest,) = source.record.view().checkpoints()
    run = Run.begin(str(tmp_path / "here"), dataset, f"init.from={storage}/source", *STILL)
    run.attempt(2)
    assert run.record.identity["init"]["place"] == f"{storage}/source/{newest.prefix}"
    assert first_digest(run) == source.log("metrics")[-1]["digest"]


def test_a_file_that_has_changed_since_is_refused(dataset: str, tmp_path: Path) -> None:
    file = tmp_path / "net.safetensors"
    save_file(own_tensors(model()), file)
    run = Run.begin(str(tmp_path / "runs"), dataset, f"init.from={file}", *STILL)
    save_file(own_tensors(model(seed=4)), file)
    with pytest.raises(RuntimeError, match=r"init\.changed.*these are not the parameters that the run was begun with"):
        run.attempt(2)


def test_a_damaged_checkpoint_is_refused(whole: Run, dataset: str, tmp_path: Path) -> None:
    source = Run.begin(str(tmp_path), dataset, *SHORT, name="source")
    source.attempt(1)
    run = Run.begin(str(tmp_path), dataset, "init.from=source", *STILL)
    flip(source.store, source.record.view().checkpoints()[0], "__0_0.distcp")
    with pytest.raises(RuntimeError, match=r"checkpoint\.damaged.*__0_0\.distcp differs from its digest"):
        run.attempt(2)


def run_config(dataset: str, *overrides: str):  # type: ignore[no-untyped-def]
    base = ["train.global_batch=8", "train.micro_batch=8", "train.steps=1", f"data.path={dataset}"]
    return load_config(find_pipeline(PIPELINE), [*base, *overrides]).config


def test_what_is_not_there_is_said(dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Run.begin(str(tmp_path / "runs"), dataset, name="young")
    cases = {
        "none": f"there is no run none at {tmp_path}/runs/none",
        "./none": f"there is no run ./none at {tmp_path}/none",
        "young": f"the run {tmp_path}/runs/young has no checkpoint yet",
        "runs/young/checkpoints/step-00000003.a000001": (
            f"there is no checkpoint {tmp_path}/runs/young/checkpoints/step-00000003.a000001"
        ),
        "none.safetensors": f"{tmp_path}/none.safetensors cannot be read: No such file or directory",
        "x.safetensors.index.json": (
            "x.safetensors.index.json lists the parts of a model in several files, which are not read"
        ),
        "s3://bucket/net.safetensors": "s3://bucket/net.safetensors is not a local file",
    }
    for given, message in cases.items():
        with pytest.raises(ConfigError) as caught:
            settle_initial(run_config(dataset, f"init.from={given}"))
        assert (caught.value.code, caught.value.location) == ("init.unknown", "init.from")
        assert caught.value.message == message
        assert caught.value.hint
    assert settle_initial(run_config(dataset)) is None


def test_skip_without_a_source_has_no_effect_and_says_so(dataset: str) -> None:
    with pytest.raises(ConfigError, match=r"init\.skip has no effect with init\.from null"):
        run_config(dataset, "init.skip=[head.*]")
    assert load_config(find_pipeline(PIPELINE), _base(dataset)).origins["init.from"] == DEFAULT


def _base(dataset: str) -> list[str]:
    return ["train.global_batch=8", "train.micro_batch=8", "train.steps=1", f"data.path={dataset}"]


def test_what_does_not_fit_is_said_before_there_is_a_run(dataset: str, tmp_path: Path) -> None:
    file = tmp_path / "net.safetensors"
    save_file({**own_tensors(model()), "old": torch.ones(1)}, file)
    with pytest.raises(ConfigError, match="  left over: old\n") as caught:
        Run.begin(str(tmp_path / "runs"), dataset, f"init.from={file}")
    assert (caught.value.code, caught.value.location) == ("init.mismatch", str(file))
    assert not (tmp_path / "runs").exists()
    with pytest.raises(ConfigError, match=r"different: .+ is float32\[.+\], the model's is float32\[") as caught:
        Run.begin(str(tmp_path / "runs"), dataset, f"init.from={file}", "init.skip=[old]", "model.width=8")
    Run.begin(str(tmp_path / "runs"), dataset, f"init.from={file}", "init.skip=[old]")


class Small(nn.Module):
    """a (2, 3), b (2), head (4, 2), and a buffer that is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.zeros(2, 3))
        self.b = nn.Parameter(torch.zeros(2))
        self.head = nn.Linear(2, 4, bias=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))


def written(tmp_path: Path, **tensors: Tensor) -> SafetensorsSource:
    save_file({name.replace("__", "."): tensor for name, tensor in tensors.items()}, tmp_path / "x.safetensors")
    return SafetensorsSource(str(tmp_path / "x.safetensors"))


FITTING = {"a": torch.ones(2, 3), "b": torch.ones(2), "head__weight": torch.ones(4, 2), "seen": torch.tensor(5)}


def test_all_that_differs_is_listed_at_once_and_nothing_loaded(tmp_path: Path) -> None:
    source = written(
        tmp_path, a=torch.ones(3, 2), head__weight=torch.ones(4, 2), seen=torch.ones(()), old=torch.ones(1)
    )
    net = Small()
    with pytest.raises(ConfigError) as caught:
        load_parameters(source, net, ["haed.*"], "x.safetensors")
    assert caught.value.code == "init.mismatch"
    assert caught.value.message == (
        "these parameters do not fit the model:\n"
        "  missing: b\n"
        "  left over: old\n"
        "  different: a is float32[3, 2], the model's is float32[2, 3]\n"
        "  different: seen is float32[], the model's is int64[]\n"
        "  init.skip: haed.* matches no key"
    )
    assert not any(value.any() for name, value in net.state_dict().items() if name != "head.weight")


def test_what_is_skipped_stays_as_initialised(tmp_path: Path) -> None:
    source = written(tmp_path, **{**FITTING, "head__weight": torch.ones(9, 2), "old": torch.ones(1)})
    net = Small()
    before = net.head.weight.clone()
    load_parameters(source, net, ["head.*", "old"], "x")
    assert torch.equal(net.head.weight, before)
    assert (net.a.sum(), net.b.sum(), net.seen) == (6, 2, 5)


def test_other_floating_point_types_are_taken_and_the_models_own_kept(tmp_path: Path) -> None:
    source = written(tmp_path, **{**FITTING, "a": torch.full((2, 3), 0.5, dtype=torch.bfloat16)})
    net = Small()
    load_parameters(source, net, [], "x")
    assert (net.a.dtype, net.a.detach().sum().item()) == (torch.float32, 3.0)


def test_many_differences_are_cut(tmp_path: Path) -> None:
    source = written(tmp_path, **FITTING, **{f"x{i:02d}": torch.ones(1) for i in range(23)})
    with pytest.raises(ConfigError, match=r"left over: x19\n  … and 3 more"):
        load_parameters(source, Small(), [], "x")


def test_a_file_that_is_no_safetensors_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"hello, this is no such file")
    with pytest.raises(DamageError) as caught:
        SafetensorsSource(str(tmp_path / "x.safetensors"))
    assert (caught.value.code, caught.value.location) == ("init.not-safetensors", str(tmp_path / "x.safetensors"))


def test_what_a_run_began_with_is_plain_values() -> None:
    assert Initial(**Initial("p", "d", "t").to_dict()) == Initial("p", "d", "t")

"""``pliant prepare`` and ``pliant data``, on a dataset that is really there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.command import pliant

SETTINGS = ("data.path=set", "train.global_batch=8", "train.micro_batch=8", "train.steps=1")
PIPELINE = """\
import pyarrow as pa
from pliant.train.protocols import Pipeline, Split

SCHEMA = pa.schema({{"x": pa.int64()}})

def rows(n):
    yield pa.record_batch([pa.array(range(n))], schema=SCHEMA)
    {after}

class Toy(Pipeline):
    def prepare(self):
        yield Split("train", SCHEMA, rows({rows}), row_group_rows=8, rows_per_file=16)
        yield Split("validation", SCHEMA, rows(5))

pipeline = Toy
"""


def write(work: Path, *, rows: int = 40, after: str = "") -> None:
    (work / "toy.py").write_text(PIPELINE.format(rows=rows, after=after))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the pipeline and its dataset ``set``; left as it is."""
    work = tmp_path_factory.mktemp("prepared")
    write(work)
    done = pliant("prepare", "./toy.py", *SETTINGS, cwd=work)
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["split", "rows", "files", "size", "where"],
        ["train", "40", "3", *done.stdout.splitlines()[1].split()[3:5], "set/train"],
        ["validation", "5", "1", *done.stdout.splitlines()[2].split()[3:5], "set/validation"],
    ]
    assert done.stderr.splitlines() == [
        "preparing toy in set",
        "  train …",
        "  validation …",
        "train on it with: pliant train ./toy.py",
    ]
    return work


@pytest.fixture
def work(prepared: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(prepared, tmp_path / "work"))


def test_preparing_again_compares(work: Path, run: Run) -> None:
    before = {f: f.read_bytes() for f in (work / "set").rglob("*") if f.is_file()}
    done = run("prepare", "./toy.py", "--json", *SETTINGS, cwd=work)
    shown = json.loads(done.stdout)
    assert shown["pipeline"] == "toy"
    assert shown["splits"]["train"]["rows"] == 40
    assert {f: f.read_bytes() for f in (work / "set").rglob("*") if f.is_file()} == before


def test_another_dataset_is_not_overwritten_unless_asked(work: Path, run: Run) -> None:
    write(work, rows=41)
    done = run("prepare", "./toy.py", *SETTINGS, cwd=work)
    assert done.returncode == 2
    assert "error[data.exists] set/train  another dataset lies here" in done.stderr
    assert "give --overwrite to replace it" in done.stderr
    done = run("prepare", "./toy.py", "--overwrite", "--json", *SETTINGS, cwd=work)
    assert json.loads(done.stdout)["splits"]["train"]["rows"] == 41


def test_what_prepare_raises_is_the_users_error(work: Path, run: Run) -> None:
    write(work, after="raise RuntimeError('no rows left')")
    done = run("prepare", "./toy.py", "--overwrite", *SETTINGS, cwd=work)
    assert done.returncode == 1
    assert "RuntimeError: no rows left\n" in done.stderr
    assert ", in rows\n" in done.stderr
    assert (
        done.stderr.splitlines()[-1]
        == f"error[pipeline.prepare] {work}/toy.py  prepare raised RuntimeError: no rows left"
    )


def test_a_pipeline_that_prepares_nothing(tmp_path: Path, run: Run) -> None:
    (tmp_path / "toy.py").write_text("from pliant.train.protocols import Pipeline as pipeline\n")
    done = run("prepare", "./toy.py", *SETTINGS, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[1:] == [
        f"error[pipeline.no-prepare] {tmp_path}/toy.py  "
        "toy does not prepare data: its dataset must lie at data.path set",
        "  put its shards there yourself, or give it a method prepare",
    ]


def test_inspect(prepared: Path, run: Run) -> None:
    done = run("data", "inspect", "set", "train.global_batch=8", "data.window=2", "elastic.min_workers=2", cwd=prepared)
    assert (done.returncode, done.stderr) == (0, "")
    assert "2 lanes × window 2 × (1 + 1 ahead), batch 8, 2 workers" in done.stdout
    shown = json.loads(run("data", "inspect", "set", "data.lanes=4", "--json", cwd=prepared).stdout)
    assert shown["splits"]["train"]["rows"] == 40
    assert shown["splits"]["train"]["stream"]["lanes"] == 4
    assert shown["splits"]["train"]["stream"]["global_batch"] == 256


def test_verify(prepared: Path, run: Run) -> None:
    done = run("data", "verify", "set", cwd=prepared)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["split", "train", "validation"]
    shown = json.loads(run("data", "verify", "set", "--json", cwd=prepared).stdout)
    assert shown["splits"]["train"]["rows"] == 40
    assert shown["splits"]["train"]["recorded"] is True


def test_verify_finds_damage(work: Path, run: Run) -> None:
    shard = sorted((work / "set" / "train").glob("*.parquet"))[1]
    shard.write_bytes(shard.read_bytes()[:-9])
    done = run("data", "verify", "set", cwd=work)
    assert (done.returncode, done.stdout) == (4, "")
    assert shard.name in done.stderr


def test_verify_says_what_it_cannot_see(tmp_path: Path, run: Run) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    pa = pytest.importorskip("pyarrow")
    (tmp_path / "set").mkdir()
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "set" / "a.parquet")
    done = run("data", "verify", "set", cwd=tmp_path)
    assert done.returncode == 0
    assert "none" in done.stdout
    assert done.stderr == "set: 1 files have no page checksums; a changed value in them would not show\n"


def test_repack(work: Path, run: Run) -> None:
    done = run("data", "repack", "set", "again", "--row-group-rows", "5", "--memory", "1MiB", "--json", cwd=work)
    shown = json.loads(done.stdout)
    assert shown["source"] == "set"
    assert {name: split["rows"] for name, split in shown["splits"].items()} == {"train": 40, "validation": 5}
    assert done.stderr == "rewriting set to again\n"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ["repack", "set", "again", "--memory", "3parsecs"],
            2,
            "error[usage.memory] --memory: '3parsecs' is not a size",
        ),
        (["repack", "set", "set/x"], 2, "error[data.repack-in-place]"),
        (["inspect", "set", "train.globl_batch=8"], 2, "did you mean train.global_batch (a whole number at least 1)?"),
        (["inspect", "nowhere"], 2, "error[data.not-found] nowhere"),
        (["verify", "nowhere"], 2, "error[data.not-found] nowhere"),
    ],
)
def test_refused(prepared: Path, run: Run, arguments: list[str], code: int, says: str) -> None:
    done = run("data", *arguments, cwd=prepared)
    assert (done.returncode, done.stdout) == (code, "")
    assert says in done.stderr

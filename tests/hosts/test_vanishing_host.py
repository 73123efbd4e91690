"""A host whose link is cut in mid-training: the run goes on without it, later with it again, at the same numbers."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _netns import missing

from pliant.cluster.local import RAYLET_SETTINGS
from tests.hosts.site import Site, site, wait_for
from tests.hosts.test_several_hosts import JOB

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing()), reason=f"hosts as namespaces need {', '.join(missing())}"),
]
PACED = str(Path(__file__).parent / "pipelines" / "paced.py")
LONG = {
    **JOB,
    "train.steps": 1_000_000,
    "data.reader": "local",
    "checkpoint.every_steps": 20,
    "run.store.segment_every": 0.5,
    "elastic.min_workers": 2,
    "elastic.max_workers": 3,
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("site"), config=RAYLET_SETTINGS) as made:
        yield made


def told(training: subprocess.Popen[str], *texts: str) -> str:
    """The run's next line that has all of these; AssertionError with its lines when it ends before."""
    said = []
    assert training.stdout is not None
    for line in training.stdout:
        said.append(line)
        if all(text in line for text in texts):
            return line
    raise AssertionError("".join(said))


def numbers(metrics: list[dict[str, Any]]) -> list[tuple[int, float, float]]:
    return [(entry["step"], entry["loss"], entry["grad_norm"]) for entry in metrics]


def test_a_link_that_is_cut_and_healed_and_slow(cluster: Site) -> None:
    training = cluster.start(*cluster.job(PACED, "cut", {**LONG, "model.row_s": 0.002}))
    _, beta, gamma = cluster.hosts
    told(training, "step ", "3 workers", "checkpoint")

    gamma.cut()
    lost = told(training, "3→2 workers")
    assert "from step 0" not in lost, "a checkpoint was there"
    assert any("ray::" in " ".join(process.cmdline()) for process in gamma.processes()), "its worker still runs"

    gamma.heal()
    # It is dead by the cluster's word, and hears it now.
    wait_for(lambda: "raylet" not in {process.name() for process in gamma.processes()}, training, within_s=200)
    cluster.nodes.begin(2)
    assert ", 0 steps lost" in told(training, "2→3 workers")

    beta.slow(kbit_per_s=20_000)
    told(training, "step ", "3 workers")
    beta.fast()
    cluster.pliant("stop", "cut")
    training.communicate()
    assert training.returncode == 75

    found = cluster.metrics("cut")
    assert [entry["step"] for entry in found] == list(range(1, len(found) + 1))
    assert [size for size, _ in itertools.groupby(entry["world_size"] for entry in found)] == [3, 2, 3]
    alone = cluster.job(PACED, "alone", {**LONG, "train.steps": len(found), "elastic.min_workers": 1})
    cluster.pliant(*alone, "--in-process")
    assert numbers(found) == numbers(cluster.metrics("alone"))

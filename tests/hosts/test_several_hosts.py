"""A run on several hosts that share nothing but object storage."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from _netns import missing

from tests.command import ROOT
from tests.hosts.site import Site, site

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(missing()), reason=f"hosts as namespaces need {', '.join(missing())}"),
]
JOB = {
    "train.global_batch": 60,
    "data.lanes": 6,
    "train.micro_batch": 10,
    "elastic.resources_per_worker": "{CPU: 1.25}",
    "schedule.kind": "constant",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("site")) as made:
        yield made


def test_each_host_is_one_of_its_own(cluster: Site) -> None:
    seen = [
        host.run(["sh", "-c", "hostname; cat /proc/sys/kernel/random/boot_id; echo $HOME/.ray/*; touch /tmp/mine"])
        for host in cluster.hosts
    ]
    names, boots, tokens = zip(*(done.stdout.splitlines() for done in seen), strict=True)
    assert names == ("alpha", "beta", "gamma")
    assert len(set(boots)) == 3
    assert set(tokens) == {"/tmp/home/.ray/auth_token"}
    assert all((host.folder / "tmp" / "mine").exists() for host in cluster.hosts)
    assert not Path("/tmp/mine").exists()
    assert "Read-only" in cluster.hosts[1].run(["touch", str(ROOT / "mine")]).stderr


def test_who_has_no_token_cannot_join(cluster: Site) -> None:
    code = f"import ray; ray.init('{cluster.nodes.address}')"
    env = {**cluster.nodes.env, "HOME": "/tmp/shared"}
    refused = cluster.hosts[1].run([sys.executable, "-c", code], env=env)
    assert refused.returncode != 0
    assert "token" in refused.stderr


def test_a_run_uses_all_hosts(cluster: Site) -> None:
    settings = {**JOB, "train.steps": 40, "elastic.min_workers": 3, "elastic.max_workers": 3}
    cluster.pliant(*cluster.job("digits", "three", settings))
    found = cluster.metrics("three")
    assert [entry["step"] for entry in found] == list(range(1, 41))
    assert {entry["world_size"] for entry in found} == {3}

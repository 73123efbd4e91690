"""cluster.yaml is what Ray's cluster launcher takes."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from tests.command import ROOT, pliant


@pytest.fixture
def cluster() -> dict[str, Any]:
    """The file as the launcher reads it."""
    return yaml.safe_load((ROOT / "cluster.yaml").read_text(encoding="utf-8"))


def launched(cluster: dict[str, Any]) -> dict[str, Any]:
    """What ``ray up`` does with a file before it asks the cloud."""
    prepared = prepare_config(cluster)
    validate_config(prepared | {"cluster_synced_files": []})
    return prepared


def test_rays_own_validator_accepts_it(cluster: dict[str, Any]) -> None:
    prepared = launched(cluster)
    assert set(prepared["available_node_types"]) == {"head", "spot-worker"}


def test_the_validator_would_notice(cluster: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="Additional properties are not allowed"):
        launched(cluster | {"no_such_key": 1})
    with pytest.raises(ValueError, match="head_node_type"):
        launched(cluster | {"head_node_type": "none"})


def test_the_head_stays_and_the_workers_are_spot(cluster: dict[str, Any]) -> None:
    head, worker = (cluster["available_node_types"][name] for name in ("head", "spot-worker"))
    assert cluster["head_node_type"] == "head"
    assert "InstanceMarketOptions" not in head["node_config"]
    assert worker["node_config"]["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert head["resources"]["CPU"] == 0
    assert worker["max_workers"] > 1


def test_machines_get_the_pinned_packages(cluster: dict[str, Any]) -> None:
    assert any("--constraint ~/pliant/constraints.txt" in command for command in cluster["setup_commands"])
    assert cluster["file_mounts"]["~/pliant"] == "."


def test_worker_machines_are_started_by_an_agent_and_the_head_is_not(cluster: dict[str, Any]) -> None:
    *_, started = cluster["worker_start_ray_commands"]
    agent = shlex.split(started.partition("/pliant cluster notice-agent ")[2])
    assert agent[agent.index("--") + 1 :] == ["$HOME/pliant-venv/bin/ray", "start", "--address=$RAY_HEAD_IP:6379"]
    done = pliant("cluster", "notice-agent", *agent[: agent.index("--")], "--", "sleep", "0")
    assert "error[cluster.command]" in done.stderr, "its options are right, what it was given to start is not"
    assert not any("notice-agent" in command for command in cluster["head_start_ray_commands"])


def test_the_token_goes_to_every_machine_that_is_told_to_use_one(cluster: dict[str, Any]) -> None:
    assert cluster["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
    for commands in ("head_start_ray_commands", "worker_start_ray_commands"):
        assert "RAY_AUTH_MODE=token" in cluster[commands][-1]

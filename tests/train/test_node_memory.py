"""The memory of a joined cluster's nodes decides, too, whether workers fit."""

from __future__ import annotations

import pytest

from pliant.settings import RunConfig
from pliant.train.worker import node_room

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


def config(**resources: float) -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"path": "x"},
            "train": {"global_batch": 8, "micro_batch": 1, "steps": 1},
            "elastic": {"resources_per_worker": resources},
        }
    )


def test_workers_share_the_memory_of_their_node() -> None:
    import ray

    (node,) = ray.nodes()
    memory = int(node["Resources"]["memory"])
    for workers, sharing in ((1, 1), (3, 3), (9, 4)):  # the cluster of the tests has 4 CPUs
        room = node_room(config(CPU=1.0), workers)
        assert room is not None
        assert room.bytes == memory // sharing
        assert f"shared by {sharing} workers" in room.source
    assert node_room(config(CPU=5.0), 1) is None, "no node can hold such a worker"

"""What all tests share: servers and clusters, started once a session, and the order in which tests run."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.s3 import S3Server

settings.register_profile("pliant", deadline=None)  # how long an example takes depends on what else the machine does
settings.load_profile("pliant")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3 server for the whole session; the AWS_* variables of this process lead to it."""
    with S3Server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.env.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="session")
def ray_cluster(s3_server: S3Server) -> Iterator[None]:
    """One local Ray for the session, joined to no other on this machine, with a directory of its own.

    Its processes keep the environment in which it starts, and so know the session's object storage.
    """
    import ray

    # Not pytest's own: the paths of Ray's sockets must stay short.
    with tempfile.TemporaryDirectory(prefix="pliant-ray-", ignore_cleanup_errors=True) as directory:
        ray.init(
            address="local",
            num_cpus=4,
            include_dashboard=False,
            log_to_driver=False,
            object_store_memory=256 * 2**20,
            _temp_dir=directory,
        )
        yield
        ray.shutdown()


def _cost(item: pytest.Item) -> int:
    """Cheap tests first, so that a broken decision shows before a cluster is started."""
    marks = ("slow", "ray", "long", "hosts")
    return max((i for i, mark in enumerate(marks, 1) if item.get_closest_marker(mark)), default=0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_cost)  # stable: the order inside a group stays that of the files

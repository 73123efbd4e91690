"""What all tests share: the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.s3 import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3 server for the whole session; the AWS_* variables of this process lead to it."""
    with S3Server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.env.items():
            patch.setenv(name, value)
        yield server


def _cost(item: pytest.Item) -> int:
    """Cheap tests first, so that a broken decision shows before a cluster is started."""
    marks = ("slow", "ray", "long", "hosts")
    return max((i for i, mark in enumerate(marks, 1) if item.get_closest_marker(mark)), default=0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_cost)  # stable: the order inside a group stays that of the files

"""What all tests share: the order in which they run."""

from __future__ import annotations

import pytest


def _cost(item: pytest.Item) -> int:
    """Cheap tests first, so that a broken decision shows before a cluster is started."""
    marks = ("slow", "ray", "long", "hosts")
    return max((i for i, mark in enumerate(marks, 1) if item.get_closest_marker(mark)), default=0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_cost)  # stable: the order inside a group stays that of the files

"""How much memory a worker may take: what it asks for, else its share of the machine, within the container's limit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from pliant.settings import RunConfig
from pliant.units import format_bytes


@dataclass(frozen=True)
class Room:
    """Memory that a worker may take, and in words why that much."""

    bytes: int
    source: str


@dataclass(frozen=True)
class Rooms:
    """Room in host memory and on the device; None where it is not known from here."""

    host: Room | None
    device: Room | None = None


def rooms(
    config: RunConfig, workers: int, *, machine: Room | None, device_bytes: int | None, spare_bytes: int = 0
) -> Rooms:
    """What each of ``workers`` workers may take. Pure.

    Args:
        machine: memory of the machine that all of them share; None where they run elsewhere.
        device_bytes: memory of a GPU there; None where it is not known.
        spare_bytes: what the process takes that stands by for each worker.
    """
    asked = config.elastic.resources_per_worker
    host = device = None
    if "memory" in asked:
        host = Room(int(asked["memory"]), "elastic.resources_per_worker.memory")
    elif machine is not None:
        shared = "" if workers == 1 else f", shared by {workers} workers"
        stands_by = ", less a process that stands by" if spare_bytes else ""
        host = Room(max(machine.bytes // workers - spare_bytes, 0), f"{machine.source}{shared}{stands_by}")
    if device_bytes is not None:
        share = min(1.0, asked.get("GPU", 1.0))
        device = Room(int(device_bytes * share), f"{share:g} of a GPU of {format_bytes(device_bytes)}")
    return Rooms(host, device)


def machine_room(root: Path = Path("/")) -> Room:
    """Memory of this machine, or of the container that this process is in.

    Args:
        root: where ``proc`` and ``sys`` are found.
    """
    total = int(psutil.virtual_memory().total)
    limit = container_limit(root)
    if limit is not None and limit < total:
        return Room(limit, f"the container's limit of {format_bytes(limit)}")
    return Room(total, f"this machine's {format_bytes(total)}")


def container_limit(root: Path = Path("/")) -> int | None:
    """The lowest memory limit of this process's control groups, v1 or v2, or None."""
    return min(_limits(root), default=None)


def _limits(root: Path) -> Iterator[int]:
    mount = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            bases, file = [mount, mount / "unified"], "memory.max"
        elif "memory" in controllers.split(","):
            bases, file = [mount / "memory"], "memory.limit_in_bytes"
        else:
            continue
        # A limit of any group above holds too. Inside a container the path may be the host's, and not be there.
        inner = Path(path.lstrip("/"))
        for base in bases:
            for folder in (inner, *inner.parents):
                try:
                    yield int((base / folder / file).read_text())
                except (OSError, ValueError):  # not there, or "max"
                    continue

"""Faults of a run's storage, made on purpose: a full disk, a damaged checkpoint, a server that answers nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from pliant.cluster.deeds import Deed, identity
from pliant.storage.layout import MANIFEST
from pliant.storage.objects import endpoint
from pliant.storage.snapshot import read_view
from pliant.storage.store import Store

_LARGEST, _SMALLEST = 64 * 2**20, 4096


@contextmanager
def filled_disk(folder: Path, size: int) -> Iterator[int]:
    """A file without a name that takes ``size`` bytes of a folder's disk, or all that is free: gone with the block,
    and with this process, however that ends.

    Yields:
        The bytes that it takes.
    """
    with tempfile.TemporaryFile(dir=folder) as file:
        taken, step = 0, _LARGEST
        while taken < size and step >= _SMALLEST:
            more = min(step, size - taken)
            try:
                os.posix_fallocate(file.fileno(), taken, more)
                taken += more
            except OSError:  # no room for so much: what there is is taken in smaller pieces
                step //= 2
        yield taken


def corrupt_newest_checkpoint(store: Store, pick: float) -> str:
    """Inverts one byte in the largest file of the newest checkpoint of a run; what was done, for people.

    Args:
        store: the run's.
        pick: in [0, 1): which byte.

    Raises:
        LookupError: the run has no checkpoint.
    """
    refs = read_view(store).checkpoints()
    if not refs:
        raise LookupError("the run has no checkpoint yet")
    newest = max(refs)
    files = [info for info in store.list(newest.prefix) if not info.key.endswith(f"/{MANIFEST}") and info.size]
    if not files:
        raise LookupError(f"checkpoint {newest.name} has no file beside its manifest")
    file = max(files, key=lambda info: (info.size, info.key))
    place = int(pick * file.size)
    if store.is_local:
        with store.local_path(file.key).open("r+b") as shard:
            shard.seek(place)
            byte = shard.read(1)[0]
            shard.seek(place)
            shard.write(bytes([byte ^ 0xFF]))
    else:
        data = bytearray(store.get(file.key))
        data[place] ^= 0xFF
        store.put(file.key, bytes(data))
    return f"byte {place:,} of {file.key} inverted"


def storage_server() -> psutil.Process:
    """The process of this machine that listens where the environment says that object storage is: a server, or a relay.

    Raises:
        LookupError: there is none.
    """
    url = urlsplit(endpoint())
    if not url.hostname:
        raise LookupError("AWS_ENDPOINT_URL names no server of this machine")
    port = url.port or (443 if url.scheme == "https" else 80)
    for socket in psutil.net_connections(kind="tcp"):
        if socket.status == psutil.CONN_LISTEN and socket.laddr.port == port and socket.pid:
            return psutil.Process(socket.pid)
    raise LookupError(f"no process of this machine and user listens at {url.geturl()}")


def stop_storage_server(for_s: float) -> str:
    """Lets the server answer nothing for a while; what was done, for people. LookupError as ``storage_server``."""
    server = storage_server()
    Deed([identity(server)], below=True, after_s=0.0, stop_s=for_s).begin()
    return f"{server.name()} (pid {server.pid}), which listens at {endpoint()}, answers nothing for {for_s:.0f} s"

"""Worker groups that know where the test's object storage is, and start fast."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Callable
from typing import Any

from tests.train.processes import run_group

# Building an optimizer imports torch._dynamo, which takes longer than everything else in these tests together.
multiprocessing.get_context("forkserver").set_forkserver_preload(
    ["torch", "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.checkpoint", "pyarrow.parquet", "obstore"]
)


def run(world_size: int, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Calls ``function(*args)`` on every rank; returns their results by rank. Stores may be among the arguments."""
    env = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return run_group(world_size, _with_env, env, pickle.dumps((function, args)))


def _with_env(env: dict[str, str], call: bytes) -> Any:
    os.environ.update(env)  # the server from which workers are forked may be older than the storage
    function, args = pickle.loads(call)
    return function(*args)

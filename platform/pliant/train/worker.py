"""Ray Train glue: starts a worker group for an attempt and runs the same work in each worker.

The only other file that touches Ray is data/stream.py. Checkpoints and progress do not go through Ray's own
registry and ``report``: they are Pliant's own (storage, board).
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ray
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from pliant.cluster.local import ONE_PER_NODE, LocalCluster
from pliant.data.stream import LaneDataConfig, LaneDataset
from pliant.errors import PliantError, StorageError, UnschedulableError, UserCodeError
from pliant.observe.board import Board, Note
from pliant.settings import RunConfig as Config
from pliant.train.capacity import Room
from pliant.train.parallel import lost_peer
from pliant.train.scratch import scratch_directory
from pliant.train.work import WorkSpec, work

_ENVIRONMENT = {
    # Ray's defaults poll every 2 s and wait 30 s for a process group to close and 60 s for a group to start.
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "2",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    # Its own print writes every line a second time, to its logger; Pliant records what workers print itself.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


@contextlib.contextmanager
def cluster(config: Config, *, workers: int) -> Iterator[None]:
    """Joins the configured cluster, or starts an embedded one that ends with this process.

    The embedded one declares the CPUs that workers and read tasks ask for, whatever this machine has: on two cores
    two workers would otherwise leave none for reading, which would wait for ever. One of several nodes declares on
    each what one worker and its read tasks ask for.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("ray").setLevel(logging.ERROR)
    if config.cluster.address != "local":
        ray.init(address=config.cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield
        finally:
            ray.shutdown()
        return
    read, need = config.data.read, config.elastic.resources_per_worker
    cpus = need.get("CPU", 1.0) + read.tasks * read.task_cpus
    with scratch_directory("pliant-ray-") as folder, contextlib.ExitStack() as ending:
        settings: dict[str, Any]
        if config.cluster.nodes > 1:
            nodes, back_after = config.cluster.nodes, config.cluster.back_after
            local = LocalCluster(nodes=nodes, resources={**need, "CPU": cpus}, folder=folder, back_after=back_after)
            settings = {"address": ending.enter_context(local).address}
        else:
            declared = max(os.cpu_count() or 1, math.ceil(workers * cpus))
            settings = {"address": "local", "num_cpus": declared, "include_dashboard": False, "_temp_dir": folder}
        ray.init(**settings, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield
        finally:
            ray.shutdown()


def worker_resources(config: Config) -> dict[str, float]:
    """Ray resources that each worker asks for: of a local cluster's nodes, each holds one worker."""
    return {**config.elastic.resources_per_worker, **(ONE_PER_NODE if config.cluster.nodes > 1 else {})}


def available_workers(config: Config) -> int:
    """Most workers that the cluster's live nodes can hold at once, by each node's total resources."""
    need = worker_resources(config)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    per_node = [min((int(n.get(k, 0.0) / v) for k, v in need.items() if v > 0), default=0) for n in nodes]
    return sum(per_node)


def node_room(config: Config, workers: int) -> Room | None:
    """Memory that a worker may take on the tightest of the nodes that can hold one; None where they do not say."""
    need = worker_resources(config)
    found = []
    for node in (node["Resources"] for node in ray.nodes() if node["Alive"]):
        fitting = min((int(node.get(k, 0.0) / v) for k, v in need.items() if v > 0), default=0)
        if fitting and "memory" in node:
            shared = min(fitting, workers)
            found.append(Room(int(node["memory"] / shared), f"a node's memory for Ray, shared by {shared} workers"))
    return min(found, key=lambda room: room.bytes, default=None)


def too_small(config: Config, fitting: int) -> UnschedulableError:
    """The cluster can never hold the fewest workers that are allowed."""
    return UnschedulableError(
        "cluster.too-small",
        f"the cluster can hold {fitting} workers of {config.elastic.resources_per_worker};"
        f" elastic.min_workers is {config.elastic.min_workers}",
        hint="lower elastic.resources_per_worker or elastic.min_workers, or use a larger cluster",
    )


def run_group(config: Config, spec: WorkSpec, *, workers: int, board: RemoteBoard) -> None:
    """Runs one worker group to its end; call from a thread that may block.

    Raises:
        PliantError: what a worker raised on purpose, or a UserCodeError or StorageError for the rest.
    """
    resources = worker_resources(config)
    with scratch_directory("pliant-train-") as scratch:
        trainer = TorchTrainer(
            _train_function,
            train_loop_config={"spec": spec, "board": board, "reader": config.data.reader},
            torch_config=TorchConfig(backend="nccl" if resources.get("GPU") else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=workers, use_gpu=bool(resources.get("GPU")), resources_per_worker=dict(resources)
            ),
            run_config=RunConfig(
                name=f"{spec.name}-{spec.driver:06d}",
                storage_path=scratch,
                failure_config=FailureConfig(max_failures=0),
            ),
            datasets={"train": LaneDataset()} if config.data.reader == "ray" else None,
            dataset_config=LaneDataConfig(),
        )
        try:
            trainer.fit()
        except Exception as error:
            raise _as_pliant_error(error) from error


def _train_function(config: dict[str, Any]) -> None:
    context = ray.train.get_context()
    board: RemoteBoard = config["board"]
    shard = ray.train.get_dataset_shard("train") if config["reader"] == "ray" else None
    work(
        config["spec"],
        local_rank=context.get_local_rank(),
        exchange=board.exchange,
        open_train=shard.open if shard else None,
    )


@dataclass(frozen=True)
class RemoteBoard:
    """A board that lives in an actor, on the driver's node; its methods are those of Board."""

    actor: Any

    @staticmethod
    def start() -> RemoteBoard:
        here = ray.get_runtime_context().get_node_id()
        return RemoteBoard(
            ray.remote(num_cpus=0, label_selector={"ray.io/node-id": here}, max_concurrency=4)(Board).remote()
        )

    def exchange(self, notes: list[Note]) -> int:
        return ray.get(self.actor.exchange.remote(notes))

    def request(self, wish: int) -> None:
        ray.get(self.actor.request.remote(wish))

    def drain(self) -> list[Note]:
        return ray.get(self.actor.drain.remote())


def _as_pliant_error(error: BaseException) -> PliantError:
    """The error that explains a failed group: Pliant's own if any worker raised one, else the user's, else a loss."""
    failures = getattr(error, "worker_failures", None) or {}
    causes = [failures[rank] for rank in sorted(failures)] or [error]
    own = [error for error in map(_find_own, causes) if error is not None]
    if own:
        return next((error for error in own if error.location), own[0])  # the one that says where
    for rank in sorted(failures):
        if not _is_dead(failures[rank]) and not lost_peer(failures[rank]):
            return UserCodeError("worker.failed", f"rank {rank} raised:\n{failures[rank]}")
    cause = next(filter(_is_dead, causes), causes[0])  # the others only noticed
    return StorageError("cluster.worker-lost", f"a worker was lost: {cause}", hint="resume the run")


def _is_dead(failure: BaseException) -> bool:
    """Whether a worker was killed or answers no more. Ray Train's types for it are no part of its API."""
    return isinstance(failure, ray.exceptions.RayActorError) or type(failure).__name__.startswith("WorkerHealthCheck")


def _find_own(error: BaseException | None) -> PliantError | None:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, PliantError):
            return error
        error = getattr(error, "_base_exc", None) or getattr(error, "cause", None) or error.__cause__
    return None


def in_thread(function: Any, *args: Any, **kwargs: Any) -> tuple[threading.Thread, dict[str, Any]]:
    """Runs a blocking call beside the main thread, which stays free for signals and the screen."""
    box: dict[str, Any] = {}

    def run() -> None:
        try:
            box["value"] = function(*args, **kwargs)
        except BaseException as error:
            box["error"] = error

    thread = threading.Thread(target=run, name="pliant-group", daemon=True)
    thread.start()
    return thread, box

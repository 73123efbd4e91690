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
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import ray
from ray.train import ControllerError, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig
from ray.util.placement_group import PlacementGroup

from pliant.cluster.local import ONE_PER_NODE, LocalCluster
from pliant.elastic.control import Control
from pliant.elastic.controller import ENVIRONMENT, ElasticTrainer
from pliant.elastic.nodes import room
from pliant.errors import PliantError, StorageError, UnschedulableError
from pliant.observe.board import STOP, Board, Note
from pliant.registry import PipelineRef
from pliant.settings import RunConfig as Config
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.train.capacity import Room
from pliant.train.parallel import first_use
from pliant.train.reports import Ask
from pliant.train.scratch import scratch_directory
from pliant.train.work import WorkSpec, work

_ENVIRONMENT = {
    **ENVIRONMENT,
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    # Its own print writes every line a second time, to its logger; Pliant records what workers print itself.
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}

_LEAVE_S = 20.0


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
    read, need = config.data.read, config.elastic.resources_per_worker
    cpus = need.get("CPU", 1.0) + read.tasks * read.task_cpus
    with contextlib.ExitStack() as ending:
        settings: dict[str, Any] = {"address": config.cluster.address}
        if config.cluster.address == "local":
            folder = ending.enter_context(scratch_directory("pliant-ray-"))
            if config.cluster.nodes > 1:
                nodes, back_after = config.cluster.nodes, config.cluster.back_after
                local = LocalCluster(nodes=nodes, resources={**need, "CPU": cpus}, folder=folder, back_after=back_after)
                settings["address"] = ending.enter_context(local).address
            else:
                declared = max(os.cpu_count() or 1, math.ceil(workers * cpus))
                settings |= {"num_cpus": declared, "include_dashboard": False, "_temp_dir": folder}
        ray.init(**settings, log_to_driver=False, logging_level=logging.ERROR)
        try:
            yield
        finally:
            leave_ray()


def place() -> dict[str, Any]:
    """Where the driver is: the address of its cluster's controller, as others join it, and its node there."""
    context = ray.get_runtime_context()
    return {"address": context.gcs_address, "node_id": context.get_node_id()}


def leave_ray() -> None:
    """Leaves the cluster; one whose head is gone is not waited for."""
    leaving = threading.Thread(target=ray.shutdown, name="pliant-leave-ray", daemon=True)
    leaving.start()
    leaving.join(_LEAVE_S)


def worker_resources(config: Config) -> dict[str, float]:
    """Ray resources that each worker asks for: of a local cluster's nodes, each holds one worker."""
    return {**config.elastic.resources_per_worker, **(ONE_PER_NODE if config.cluster.nodes > 1 else {})}


def available_workers(config: Config) -> int:
    """Most workers that the cluster's live nodes can hold at once, by each node's total resources."""
    need = worker_resources(config)
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(room(node, need) for node in nodes)


def node_room(config: Config, workers: int) -> Room | None:
    """Memory that a worker may take on the tightest of the nodes that can hold one; None where they do not say."""
    need = worker_resources(config)
    found = []
    for node in (node["Resources"] for node in ray.nodes() if node["Alive"]):
        fitting = room(node, need)
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


class Exchanges(Protocol):
    """The board, or what stands for it; pickles."""

    def exchange(self, notes: list[Note]) -> int:
        """Leaves notes; returns the wishes so far."""
        ...


def run_workers(
    config: Config,
    spec: WorkSpec,
    *,
    lanes: int,
    board: Exchanges,
    ask: Ask | None = None,
    reserved: PlacementGroup | None = None,
) -> None:
    """Runs worker groups, one after the other, to the end of the run; call from a thread that may block.

    Args:
        ask: of a trial, called by its rank 0; pickles.
        reserved: of a trial: the place of its only group.

    Raises:
        PliantError: what ended the run: a worker's own error, the user's, or that it came back too often.
    """
    resources = worker_resources(config)
    with scratch_directory("pliant-train-") as scratch:
        trainer = ElasticTrainer(
            _train_function,
            control=Control(
                elastic=config.elastic,
                resources=resources,
                lanes=lanes,
                steps=spec.total_steps,
                tell=board.exchange,
                stop_asked=partial(_stop_asked, board),
                committed_step=partial(_committed_step, spec.run_uri, config.run.store),
                patience_s=config.run.store.retry_for,
                warm_up=partial(_warm_up, spec.pipeline),
                reserved=reserved,
            ),
            train_loop_config={"spec": spec, "board": board, "reader": config.data.reader, "ask": ask},
            torch_config=TorchConfig(backend="nccl" if resources.get("GPU") else "gloo"),
            scaling_config=ScalingConfig(
                num_workers=config.elastic.max_workers,
                use_gpu=bool(resources.get("GPU")),
                resources_per_worker=dict(resources),
            ),
            run_config=RunConfig(name=f"{spec.name}-{spec.driver:06d}", storage_path=scratch),
        )
        _fit(trainer, config.elastic.max_failures, board)


def _fit(trainer: ElasticTrainer, max_failures: int, board: Exchanges) -> None:
    """Trains; again with a new controller where one was lost, which holds nothing that a new one cannot find out."""
    for lost in range(1, max_failures + 2):
        try:
            return trainer.fit()
        except ControllerError as error:
            if isinstance(error.controller_failure, PliantError):
                raise error.controller_failure from None
            raise _lost_controller(error) from error
        except ray.exceptions.RayActorError as error:
            if lost > max_failures:
                raise _lost_controller(error) from error
            text = f"the controller of the workers was lost: starting again ({lost} of {max_failures})"
            board.exchange([{"kind": "failure", "text": text, "cause": "infrastructure", "time": time.time()}])
        except ray.exceptions.RayError as error:
            raise _lost_controller(error) from error


def _stop_asked(board: Exchanges) -> bool:
    return bool(board.exchange([]) & STOP)


def _committed_step(run_uri: str, settings: StorageSettings) -> int | None:
    checkpoints = RunRecord.open(Store(run_uri, settings)).view().checkpoints()
    return max((ref.step for ref in checkpoints), default=None)


def _warm_up(pipeline: PipelineRef) -> None:
    """Imports the pipeline; whoever unpickles this function has imported this module, and all else a worker needs."""
    with contextlib.suppress(Exception):  # a worker will say so
        pipeline.load()
    first_use()


def _lost_controller(error: BaseException) -> StorageError:
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = f"the controller of the workers was lost: {lines[-1].strip() if lines else type(error).__name__}"
    return StorageError("cluster.controller-lost", text, hint="resume the run")


def _train_function(config: dict[str, Any]) -> None:
    context = ray.train.get_context()
    board: Exchanges = config["board"]
    work(
        config["spec"],
        local_rank=context.get_local_rank(),
        exchange=board.exchange,
        reader=config["reader"],
        ask=config["ask"],
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

"""The only file that touches Ray Train's internals: its controller, with Pliant's own decisions in place of its own.

```
RunningState ─ poll ─► errors? ────────────────► the group ended ─► budget ─► RestartingState, or the end
       ▲          └──► brain.running(): keep · leave (two rounds of calls into the gates) · abandon, lost, stalled ┘
       │                                                                    │ the old group is ended at once
  worker group ◄─ SchedulingState ◄─ brain.idle(): start, with so many, on these nodes · wait ◄────────────────┘
```

Ray Train keeps doing the rest: placement groups, worker groups, requests to the autoscaler. What is overridden was read
in the source of RAY_TRAIN; `tests/elastic/test_contract.py` holds what of it is relied on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.callback import WorkerGroupCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.failure_handling import FailureDecision, FailurePolicy
from ray.train.v2._internal.execution.scaling_policy import NoopDecision, ResizeDecision, ScalingPolicy
from ray.train.v2._internal.execution.worker_group import Worker, WorkerGroup
from ray.train.v2._internal.execution.worker_group import worker_group as worker_group_module
from ray.train.v2._internal.execution.worker_group.placement_group_handle import DefaultPlacementGroupHandle
from ray.train.v2._internal.execution.worker_group.poll import WorkerGroupPollStatus, WorkerStatus
from ray.train.v2._internal.util import ObjectRefWrapper
from ray.train.v2.api.config import FailureConfig
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError
from ray.util import placement_group, placement_group_table, remove_placement_group
from ray.util.placement_group import PlacementGroup

from pliant.elastic.brain import Brain
from pliant.elastic.control import Control, EndGroup, Hand, StopAsked
from pliant.elastic.policy import Start
from pliant.elastic.spares import Spares
from pliant.errors import PliantError

RAY_TRAIN = "2.60"
"""The version of Ray whose source this was written against, and is tested with."""

_REMOVAL_S = 1.0

ENVIRONMENT = {
    "RAY_TRAIN_V2_ENABLED": "1",
    # Ray's defaults poll every 2 s and wait 30 s for a process group to close and 60 s for a group to start.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.25",
    "TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S": "2",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "10",
    # Its own reaction to a notice is to train on until the machine is gone.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
}
"""What this needs of the environment of driver and controller."""


def check_ray() -> None:
    """Refuses a Ray whose internals may be others.

    Raises:
        PliantError: naming the version that is needed.
    """
    if ray.__version__.rpartition(".")[0] != RAY_TRAIN:
        raise PliantError(
            "elastic.ray-version",
            f"Ray is {ray.__version__}; elastic control is written for, and tested with, Ray {RAY_TRAIN}",
            hint=f"install it: pip install 'ray[data,train,tune]=={RAY_TRAIN}.*'",
        )


class ElasticTrainer(TorchTrainer):
    """A TorchTrainer whose worker group changes its size, and comes back, as Pliant decides.

    Args:
        control: what the decisions need to know; picklable.
    """

    def __init__(self, *args: Any, control: Control, **kwargs: Any) -> None:
        check_ray()
        super().__init__(*args, **kwargs)
        self._control = control

    def fit(self) -> Any:
        """Runs the workers to the end of the run, or until it has stopped as it was asked to.

        Raises:
            TrainingFailedError: the run cannot go on; a ControllerError holds the PliantError that says why.
            RayActorError: the controller was lost; nothing of its group is left.
        """
        here = ray.get_runtime_context().get_node_id()
        actor_class = ray.remote(
            num_cpus=0,
            label_selector={ray._raylet.RAY_NODE_ID_KEY: here},
            runtime_env={"env_vars": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}},
        )(ElasticController)
        controller = actor_class.remote(
            control=self._control,
            train_fn_ref=ObjectRefWrapper(self._get_train_func()),
            train_run_context=self.train_run_context,
            callbacks=self._create_default_callbacks(),
        )
        try:
            ray.get(controller.run.remote())
            result = ray.get(controller.get_result.remote())
        except RayActorError:
            self._clear_away()
            raise
        if result.error and not isinstance(result.error, _Stopped):
            raise result.error
        return result

    def _create_default_callbacks(self) -> list[Any]:
        # Ray's own cleaner is a process more, and asks a dashboard that need not be there.
        callbacks = super()._create_default_callbacks()
        return [one for one in callbacks if not isinstance(one, PlacementGroupCleanerCallback)]

    def _clear_away(self) -> None:
        """Actors end with the controller that made them; what they reserved does not."""
        for found, about in placement_group_table().items():
            if about["state"] != "REMOVED" and about["name"].startswith(f"{self.run_config.name}-"):
                remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(found))))


class Group(WorkerGroup):
    """A worker group that can be ended at once, and tells how far its start has come."""

    brain: Brain
    spares: Spares
    group_name: str
    reserved: PlacementGroup | None

    def _create_placement_group(self, scaling_config: Any, worker_group_context: Any) -> Any:
        if self.reserved is not None:
            return _ReservedPlace(self.reserved)
        wanted = worker_group_context
        group = placement_group(
            [wanted.resources_per_worker] * wanted.num_workers,
            strategy=wanted.placement_strategy,
            bundle_label_selector=wanted.label_selector,
            name=f"{self.group_name}-{wanted.run_attempt_id}",
        )
        return DefaultPlacementGroupHandle(group)

    def _create_workers(
        self, num_workers: int, placement_group: Any, resources_per_worker: dict[str, float], **kwargs: Any
    ) -> Any:
        self.brain.timeline.mark("start")
        nodes = ray.util.placement_group_table(placement_group)["bundles_to_node_id"]
        taken = self.spares.take(nodes)
        cold = [bundle for bundle in range(num_workers) if bundle not in taken]
        options = {**kwargs, "placement_group_bundle_indices": cold}
        workers = super()._create_workers(len(cold), placement_group, resources_per_worker, **options) if cold else []
        for bundle, (actor, about) in taken.items():
            workers.append(Worker(actor, about, resources_per_worker, placement_group_bundle_index=bundle))
        return WorkerGroup._assign_worker_ranks(workers)

    def silent_since(self) -> dict[int, float]:
        """Ranks that have not answered the poll that waits for them, and when it was sent (monotonic seconds)."""
        return {rank: poll.start_time for rank, poll in self._world_rank_to_ongoing_poll.items()}

    def end(self) -> None:
        """Kills the workers and gives their resources back. What they had to say is committed, or lost anyway."""
        if not self.has_started():
            return
        state = self.get_worker_group_state()
        for worker in state.workers:
            ray.kill(worker.actor)
        # Removing bundles of a node that does not answer takes as long as the control service believes in it.
        removal = threading.Thread(target=state.placement_group_handle.shutdown, daemon=True)
        removal.start()
        removal.join(_REMOVAL_S)
        self._clear_state()
        for callback in self._callbacks:
            callback.after_worker_group_shutdown(self._worker_group_context)


class _ReservedPlace(DefaultPlacementGroupHandle):
    """A placement group of somebody else's, who gives it back."""

    def shutdown(self) -> None:
        return None


class _OneSync:
    """Stands for Ray Train's SynchronizationActor, a process that each group would start anew: one serves them all. It
    carries what workers report, and Pliant's report nothing."""

    def __init__(self, actor_class: Any) -> None:
        self._actor_class = actor_class
        self._options: dict[str, Any] = {}
        self._actor: Any = None

    def options(self, **options: Any) -> _OneSync:
        self._options = options
        return self

    def remote(self, **arguments: Any) -> Any:
        self._actor = self._actor or self._actor_class.options(**self._options).remote(**arguments)
        return self._actor


class ElasticController(TrainController):
    """Ray Train's controller. Policies and brain live in its process; they share their state."""

    _worker_group: Group | None

    def __init__(self, *, control: Control, **kwargs: Any) -> None:
        os.environ.update({name: value for name, value in ENVIRONMENT.items() if name not in os.environ})
        self._brain = Brain(control, _Hand(self))
        context = kwargs["train_run_context"]

        def spare(node: str) -> Any:
            runtime_env = WorkerGroup._get_worker_runtime_env(context.run_config.worker_runtime_env)
            here = {ray._raylet.RAY_NODE_ID_KEY: node}
            return ray.remote(num_cpus=0, label_selector=here, runtime_env=runtime_env)(Group._worker_cls).remote()

        worker_group_module.SynchronizationActor = _OneSync(worker_group_module.SynchronizationActor)
        self.spares = Spares(spare, control.warm_up)
        own = {
            "brain": self._brain,
            "spares": self.spares,
            "group_name": context.run_config.name,
            "reserved": control.reserved,
        }
        self.worker_group_cls = type("Group", (Group,), own)
        super().__init__(
            scaling_policy=_Scaling(context.scaling_config, self._brain),
            failure_policy=_Failures(self._brain),
            **{**kwargs, "callbacks": [*kwargs["callbacks"], _Starts(self._brain)]},
        )

    def _make_and_handle_scaling_decision_for_non_running_worker_group(self, controller_state: Any) -> Any:
        # Ray would keep the survivors, stuck in collectives, for as long as there are too few machines.
        if self._worker_group is not None:
            self._worker_group.end()
            self._worker_group = None
            self._brain.timeline.mark("teardown")
        return super()._make_and_handle_scaling_decision_for_non_running_worker_group(controller_state)

    async def _poll_workers(self) -> WorkerGroupPollStatus:
        """The state of the workers; while what has happened is still being told, the errors so far are held back."""
        status = await super()._poll_workers()
        if status.finished and not status.errors:
            self._brain.finished()
        if status.errors and self._brain.hears_more(status.errors, finished=bool(status.finished)):
            statuses = {
                rank: WorkerStatus(running=True) if one.error is not None else one
                for rank, one in status.worker_statuses.items()
            }
            return WorkerGroupPollStatus(statuses, status.worker_rank_to_replica_group_rank)
        return status

    def _execute_failure_decision(self, failure_decision: Any, training_failed_error: Any, **kwargs: Any) -> Any:
        if failure_decision == FailureDecision.RAISE and self._brain.verdict is not None:
            training_failed_error = ControllerError(self._brain.verdict)
        return super()._execute_failure_decision(failure_decision, training_failed_error, **kwargs)


class _Scaling(ScalingPolicy):
    """Sizes, and what becomes of a running group."""

    def __init__(self, scaling_config: Any, brain: Brain) -> None:
        super().__init__(scaling_config)
        self._brain = brain
        self._nodes: tuple[str, ...] = ()

    def make_decision_for_non_running_worker_group(self) -> Any:
        self._maybe_send_resource_request()
        try:
            decision = self._brain.idle()
        except StopAsked:
            raise _Stopped from None
        if not isinstance(decision, Start):
            return NoopDecision()
        self._nodes = decision.nodes
        resources = self.scaling_config._resources_per_worker_not_none
        return ResizeDecision(num_workers=decision.workers, resources_per_worker=resources)

    def make_decision_for_running_worker_group(self, worker_group_state: Any, worker_group_status: Any) -> Any:
        self._maybe_send_resource_request()
        try:
            self._brain.running()
        except EndGroup as ended:
            raise _Ended(ended) from None
        return NoopDecision()

    def on_controller_start_worker_group(self, **_: Any) -> dict[str, str] | None:
        # Ray places workers on nodes that it has not yet noticed are gone.
        return {ray._raylet.RAY_NODE_ID_KEY: f"in({','.join(self._nodes)})"} if self._nodes else None

    def _get_num_workers_for_resource_request(self) -> int:
        return int(self.scaling_config.max_workers)


class _Ended(TrainingFailedError):
    """A group that was ended from here."""

    def __init__(self, ended: EndGroup) -> None:
        super().__init__(str(ended))
        self.ended = ended


class _Stopped(TrainingFailedError):
    """Somebody wanted the run to stop while no group ran."""


class _Failures(FailurePolicy):
    """What becomes of the run when a group has ended."""

    def __init__(self, brain: Brain) -> None:
        super().__init__(FailureConfig())
        self._brain = brain

    def make_decision(self, training_failed_error: Any) -> FailureDecision:
        again = self._again(training_failed_error)
        return FailureDecision.RETRY if again else FailureDecision.RAISE

    def _again(self, error: Any) -> bool:
        if isinstance(error, _Ended):
            return self._brain.ended_by(error.ended)
        failures = getattr(error, "worker_failures", None)
        if failures is not None:
            return self._brain.ended(failures)
        cause = getattr(error, "controller_failure", error)
        if type(cause).__name__ in ("WorkerGroupStartupTimeoutError", "WorkerGroupStartupFailedError"):
            return self._brain.not_started(cause, timed_out=type(cause).__name__.endswith("TimeoutError"))
        if isinstance(cause, RayError):  # of an actor that is gone, or of what another one makes of its loss
            return self._brain.not_started(cause, timed_out=False)
        return False


class _Starts(WorkerGroupCallback):
    """Tells how far the start of a group has come."""

    def __init__(self, brain: Brain) -> None:
        self._brain = brain

    def after_worker_group_training_start(self, worker_group: Any) -> None:
        self._brain.started(tuple(str(worker.metadata.node_id) for worker in worker_group.get_workers()))


class _Hand(Hand):
    """Calls into the workers of the group that runs."""

    def __init__(self, controller: ElasticController) -> None:
        self._controller = controller

    def _group(self) -> Any:
        return self._controller.get_worker_group()

    def ask(self, function: Any, *args: Any, timeout_s: float) -> dict[int, Any]:
        calls = {worker.execute_async(function, *args): rank for rank, worker in enumerate(self._group().get_workers())}
        done, _ = ray.wait(list(calls), num_returns=len(calls), timeout=timeout_s)
        answers = {}
        for call in done:
            try:
                answers[calls[call]] = ray.get(call)
            except Exception:
                continue  # the poll tells of it
        return answers

    def ask_later(self, rank: int, function: Any) -> Any:
        return self._group().get_workers()[rank].execute_async(function)

    def answer(self, call: Any) -> tuple[bool, Any]:
        done, _ = ray.wait([call], timeout=0)
        if not done:
            return False, None
        try:
            return True, ray.get(call)
        except Exception:
            return True, None

    def keep_spares(self, wanted: Mapping[str, int]) -> bool:
        self._controller.spares.keep(wanted)
        return not self._controller.spares.getting_ready

    def silent_since(self) -> dict[int, float]:
        return dict(self._group().silent_since())

"""What is relied on of Ray Train's internals: fails on a Ray in which that has moved."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import ray
from ray.train.v2._internal import constants
from ray.train.v2._internal.callbacks.placement_group_callback import PlacementGroupCleanerCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.controller import controller as controller_module
from ray.train.v2._internal.execution.worker_group import WorkerGroup, WorkerGroupContext, WorkerGroupState
from ray.train.v2._internal.execution.worker_group import worker_group as group_module
from ray.train.v2._internal.execution.worker_group.poll import PollTask, WorkerGroupPollStatus, WorkerStatus
from ray.train.v2._internal.execution.worker_group.worker import RayTrainWorker, Worker
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from pliant.elastic import controller
from pliant.errors import PliantError


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_a_ray_that_this_was_not_tested_with_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    controller.check_ray()
    monkeypatch.setattr(ray, "__version__", "2.61.0")
    with pytest.raises(PliantError) as refused:
        controller.check_ray()
    assert str(refused.value) == (
        "error[elastic.ray-version] Ray is 2.61.0; elastic control is written for, and tested with, Ray 2.60\n"
        "  install it: pip install 'ray[data,train,tune]==2.60.*'"
    )


@pytest.mark.parametrize(
    ("owner", "name", "expected"),
    [
        (TrainController, "_make_and_handle_scaling_decision_for_non_running_worker_group",
         ["self", "controller_state"]),
        (TrainController, "_poll_workers", ["self"]),
        (TrainController, "get_worker_group", ["self"]),
        (TrainController, "_execute_failure_decision", ["self", "failure_decision", "training_failed_error",
                                                        "invoke_failure_decision_callbacks"]),
        (WorkerGroup, "_create_placement_group", ["self", "scaling_config", "worker_group_context"]),
        (WorkerGroup, "_create_workers", ["self", "num_workers", "placement_group", "resources_per_worker",
                                          "placement_group_bundle_indices", "starting_world_rank", "world_size",
                                          "replica_group_size"]),
        (WorkerGroup, "_assign_worker_ranks", ["workers", "starting_world_rank", "world_size", "replica_group_size"]),
        (WorkerGroup, "_get_worker_runtime_env", ["custom_runtime_env"]),
        (WorkerGroup, "_clear_state", ["self"]),
        (DataParallelTrainer, "_create_default_callbacks", ["self"]),
        (DataParallelTrainer, "_get_train_func", ["self"]),
        (RayTrainWorker, "execute", ["self", "fn", "fn_args", "fn_kwargs"]),
        (RayTrainWorker, "get_metadata", ["self"]),
    ],
)  # fmt: skip
def test_what_is_overridden_or_called_is_there(owner: type, name: str, expected: list[str]) -> None:
    assert parameters(getattr(owner, name)) == expected


def test_the_controller_takes_what_it_is_given() -> None:
    assert parameters(TrainController.__init__) == [
        "self", "train_fn_ref", "train_run_context", "scaling_policy", "failure_policy", "callbacks",
        "validation_config",
    ]  # fmt: skip
    source = inspect.getsource(TrainController)
    assert "self.worker_group_cls.create(" in source
    assert "on_controller_start_worker_group(" in source
    # Errors of a policy go to the failure policy, those of training as they are.
    assert "isinstance(e, TrainingFailedError)" in source
    assert controller_module.WorkerGroup is WorkerGroup


def test_a_group_keeps_what_is_read_of_it() -> None:
    assert {"workers", "sync_actor", "placement_group_handle"} <= set(WorkerGroupState.__dataclass_fields__)
    wanted = {"num_workers", "resources_per_worker", "placement_strategy", "label_selector", "run_attempt_id"}
    assert wanted <= set(WorkerGroupContext.__dataclass_fields__)
    assert set(WorkerGroupPollStatus.__dataclass_fields__) == {"worker_statuses", "worker_rank_to_replica_group_rank"}
    assert set(PollTask.__dataclass_fields__) == {"start_time", "task"}
    assert parameters(WorkerStatus)[:2] == ["running", "error"]
    assert {"actor", "metadata", "resources", "placement_group_bundle_index"} <= set(Worker.__dataclass_fields__)
    source = inspect.getsource(WorkerGroup)
    assert "self._world_rank_to_ongoing_poll" in source
    assert "SynchronizationActor.options(" in source
    assert hasattr(group_module, "SynchronizationActor")
    assert PlacementGroupCleanerCallback.__init__ is not object.__init__


@pytest.mark.parametrize("name", controller.ENVIRONMENT)
def test_what_is_set_in_the_environment_is_read(name: str) -> None:
    known = {value for value in vars(constants).values() if isinstance(value, str)}
    other = {"TORCH_PROCESS_GROUP_SHUTDOWN_TIMEOUT_S", "RAY_TRAIN_V2_ENABLED"}
    assert name in known | other

"""Which error of a group's ranks explains the others, and what it is charged to."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest
import ray
from ray.train.v2._internal.exceptions import UserExceptionWithTraceback, WorkerHealthCheckFailedError

from pliant.elastic.causes import explain, left, only_noticed
from pliant.elastic.gate import LeftError
from pliant.errors import ConfigError, PliantError, StorageError, UserCodeError

PEER = RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]")
DEAD = WorkerHealthCheckFailedError(
    "A worker health check failed.", failure=ray.exceptions.RayActorError(error_msg="killed")
)
MEMORY = WorkerHealthCheckFailedError(
    "A worker health check failed.",
    failure=ray.exceptions.RayActorError(error_msg="Task was killed due to the node running low on memory."),
)
USER = UserCodeError("pipeline.loss", "step 7: rank 1: ValueError: no\n  rows …", location="loss.py:3")
OBJECT = ray.exceptions.ObjectLostError("ab" * 28, None, "")
BROKEN = PliantError("checkpoint.broken-off", "saving broke off, probably because another worker is gone")


@pytest.mark.parametrize(
    ("errors", "cause", "ranks"),
    [
        ({1: DEAD}, "infrastructure", (1,)),
        ({0: PEER, 1: DEAD}, "infrastructure", (1,)),
        ({0: PEER}, "infrastructure", (0,)),
        ({0: BROKEN, 2: PEER}, "infrastructure", (0, 2)),
        ({0: OBJECT, 1: DEAD}, "infrastructure", (1,)),
        ({0: MEMORY, 1: PEER}, "user", (0,)),
        ({0: PEER, 1: USER, 2: DEAD}, "user", (1,)),
        ({0: ValueError("by no code of ours"), 1: PEER}, "user", (0,)),
    ],
    ids=["dead", "dead and noticed", "noticed", "broken off", "object lost", "memory", "user", "unknown"],
)
def test_one_explains_the_others(errors: Mapping[int, BaseException], cause: str, ranks: tuple[int, ...]) -> None:
    ended = explain(errors, step=7, gone={})
    assert ended.failure is not None
    assert (ended.failure.cause, ended.ranks, ended.failure.step) == (cause, ranks, 7)
    assert "\n" not in ended.failure.text


def test_a_loss_on_a_node_that_was_to_go_away_is_free() -> None:
    gone = {1: "node abcdef01 goes away", 2: "node 12345678 does not answer"}
    assert explain({0: PEER, 1: DEAD}, step=7, gone=gone).failure.cause == "preemption"  # type: ignore[union-attr]
    silent = explain({2: DEAD}, step=7, gone=gone).failure
    assert silent is not None
    assert (silent.cause, silent.text) == ("infrastructure", "rank 2 died: node 12345678 does not answer")


def test_what_trying_again_does_not_mend_ends_the_run() -> None:
    storage = StorageError("data.read", "no answer after 6 attempts", location="s3://bucket/part-0001.parquet")
    for final in (storage, ConfigError("resume.other-stream", "the checkpoint's stream is another one")):
        ended = explain({0: PEER, 1: final}, step=7, gone={})
        assert ended.failure is None
        assert ended.error is final


def test_user_errors_of_the_same_kind_have_the_same_signature() -> None:
    first, again = (explain({0: USER}, step=step, gone={}).failure for step in (7, 9))
    assert first is not None
    assert again is not None
    assert first.signature == again.signature
    assert explain({0: ValueError("a")}, step=1, gone={}).failure.signature == "ValueError: a"  # type: ignore[union-attr]
    assert explain({0: MEMORY}, step=1, gone={}).failure.signature == "oom"  # type: ignore[union-attr]


def test_leaving_is_no_failure() -> None:
    wrapped = UserExceptionWithTraceback(pickle.loads(pickle.dumps(LeftError("left after step 3"))), "…")
    assert left({0: wrapped, 1: LeftError("left after step 3")})
    assert not left({0: PEER, 1: DEAD})
    assert not left({})


def test_one_that_left_knows_that_all_is_saved() -> None:
    """Its machine may be gone before the last of them has said so."""
    gone = LeftError("left after step 3")
    assert left({0: gone, 1: PEER, 2: DEAD})
    assert not left({0: gone, 1: USER})
    explained = explain({0: gone, 1: USER}, step=7, gone={})
    assert explained.ranks == (1,)
    assert explain({0: gone, 1: DEAD}, step=7, gone={}).failure.cause == "infrastructure"  # type: ignore[union-attr]


def test_who_only_noticed_is_waited_with() -> None:
    assert only_noticed(PEER)
    assert only_noticed(BROKEN)
    assert only_noticed(OBJECT)
    assert not only_noticed(DEAD)
    assert not only_noticed(USER)

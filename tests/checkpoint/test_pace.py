"""The pace of a save: rests in proportion to the work, none once somebody waits, and the same bytes either way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count

import pytest
import torch.distributed as dist

from pliant.checkpoint.pace import Pace, allowed_rest
from pliant.checkpoint.verify import verify_checkpoints
from pliant.checkpoint.writer import CheckpointWriter, SaveResult
from pliant.storage.layout import CheckpointRef
from pliant.storage.store import Store
from tests.checkpoint.group import run
from tests.checkpoint.models import build
from tests.checkpoint.saving import save, writer

DATA = memoryview(bytes(range(256)) * 2**14)  # 4 MiB
FOR_EVER = 1e6


def busy(seconds: float) -> Callable[[], float]:
    """A clock of a thread that uses so much of a core between two looks."""
    looks: Iterator[int] = count()
    return lambda: seconds * next(looks)


def test_pieces_are_the_data() -> None:
    assert b"".join(Pace(FOR_EVER, busy(0)).pieces(DATA)) == DATA
    assert list(Pace().pieces(memoryview(b""))) == []


def test_it_rests_a_multiple_of_its_work_until_what_is_allowed_is_used_up() -> None:
    pace = Pace(0.1, busy(0.005))
    pieces = pace.pieces(DATA)
    next(pieces)
    next(pieces)
    assert pace.rested_s >= 9 * 0.005
    list(pieces)
    rested_s = pace.rested_s
    assert rested_s >= 0.1
    list(pace.pieces(DATA))
    assert pace.rested_s == rested_s


@pytest.mark.parametrize("pace", [Pace(0.0, busy(FOR_EVER)), Pace(FOR_EVER, busy(1e-4))], ids=["not allowed", "little"])
def test_it_does_not_rest(pace: Pace) -> None:
    assert b"".join(pace.pieces(DATA)) == DATA
    assert pace.rested_s == 0


def resting(allowed_s: float = FOR_EVER) -> tuple[Pace, threading.Event]:
    """A pace whose first rest does not end by itself, and what is set when that begins."""
    begun, looks = threading.Event(), count()

    def clock() -> float:
        look = next(looks)
        if look:
            begun.set()
        return FOR_EVER * look

    return Pace(allowed_s, clock), begun


def test_hurrying_ends_a_rest_and_no_other_follows() -> None:
    pace, begun = resting()
    done: list[memoryview] = []
    thread = threading.Thread(target=lambda: done.extend(pace.pieces(DATA)), daemon=True)
    thread.start()
    begun.wait()
    pace.hurry()
    thread.join(timeout=60)
    assert b"".join(done) == DATA


def test_what_is_allowed_leaves_room_for_the_next_save_and_for_the_other_ranks() -> None:
    assert allowed_rest(10, 300) == 5
    assert allowed_rest(600, 300) == 150
    assert allowed_rest(0, 300) == 0


def _save_at(pace: Pace, store: Store, step: int, waits: Callable[[CheckpointWriter], object]) -> SaveResult:
    saving = writer(store)
    model, optimizer = build(dist.is_initialized())
    save(saving, step, model, optimizer, pace=pace)
    waits(saving)
    saving.close()
    return saving.poll()[0]


WAITS: dict[str, Callable[[CheckpointWriter], object]] = {
    "wait": lambda saving: saving.wait(timeout=60),
    "close": lambda saving: saving.close(timeout=60),
    "newer save": lambda saving: save(saving, 2, *build(False)),
}


@pytest.mark.parametrize("how", WAITS)
def test_a_save_that_rests_hurries_when_it_is_waited_for(local_store: Store, how: str) -> None:
    pace, begun = resting()

    def wait(saving: CheckpointWriter) -> None:
        begun.wait()
        assert saving.busy
        WAITS[how](saving)

    result = _save_at(pace, local_store, 1, wait)
    assert result.outcome == "committed"
    assert 0 < result.rested_s <= result.background_s
    other = _save_at(Pace(), local_store.child("unpaced"), 1, CheckpointWriter.wait)
    assert (other.rested_s, other.manifest.files) == (0, result.manifest.files)


def _rest_on_one_rank(store: Store, resting_rank: int) -> SaveResult:
    pace, begun = resting() if dist.get_rank() == resting_rank else (Pace(), None)

    def wait(saving: CheckpointWriter) -> None:
        if begun is not None:
            begun.wait()
        dist.barrier()
        assert saving.wait(timeout=60) is not None

    return _save_at(pace, store, 1, wait)


@pytest.mark.parametrize("resting_rank", [0, 1])
def test_ranks_that_rest_differently_save_together(local_store: Store, resting_rank: int) -> None:
    results = run(2, _rest_on_one_rank, local_store, resting_rank)
    assert [result.outcome for result in results] == ["committed"] * 2
    assert results[resting_rank].rested_s > 0
    assert results[1 - resting_rank].rested_s == 0
    [report] = verify_checkpoints(local_store, [CheckpointRef(1, 1)])
    assert report.status == "intact"

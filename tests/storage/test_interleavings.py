"""Any interleaving of drivers, groups and zombies leaves one history.

Every writer may be stopped at any point and continue at any later one: claims, decisions, log entries, checkpoints
and deletions land long after the check before them, or without any check at all.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pliant.errors import FencedError
from pliant.storage.attempts import Attempt
from pliant.storage.claims import take_claim
from pliant.storage.layout import CheckpointRef, Segment, attempt_key, encode
from pliant.storage.logs import last_accepted, read_log
from pliant.storage.record import RunRecord
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from pliant.storage.view import DELETE, QUARANTINE, RestoreDecision

INDEX = st.integers(0, 4)
"""The how-manieth newest writer, or checkpoint."""


class Writer:
    """An attempt with what its process holds in memory."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.step: int | None = None  # None until it has decided
        self.stalled: RestoreDecision | None = None  # a decision that was made and is not written yet
        self.logged = {"metrics": 0, "events": 0}
        self.doomed: list[CheckpointRef] = []  # what it is about to delete


class Interleavings(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        memory = Path("/dev/shm")  # where syncing costs nothing
        self.folder = tempfile.mkdtemp(prefix="pliant-", dir=memory if memory.is_dir() else None)
        self.store = Store(self.folder, StorageSettings(retry_for=0))
        self.record = RunRecord.create(self.store, {})
        self.writers: list[Writer] = []
        self.events = 0
        self.new_driver()

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    def pick(self, index: int, condition: Any = lambda w: True) -> Writer | None:
        fitting = [w for w in self.writers if condition(w)]
        return fitting[-1 - index % len(fitting)] if fitting else None

    @rule(back=INDEX, steps=st.integers(1, 3), take_over=st.booleans())
    def whole_life(self, back: int, steps: int, take_over: bool) -> None:
        """An undisturbed attempt, from claim to crash some steps after a save: histories get deep."""
        self.new_driver() if take_over else self.new_group(0)
        self.restore(0, back)
        for _ in range(2):
            self.train(0, steps, checked=True)
            self.save(0, checked=True)
        self.train(0, 1, checked=True)
        self.event(0, checked=True)

    @rule(index=INDEX, back=INDEX)
    def life_of_a_zombie(self, index: int, back: int) -> None:
        """A replaced driver goes on, believing that it owns the run, and its group takes the highest number."""
        drivers = [w for w in self.writers if w.attempt.kind == "driver"]
        if len(drivers) < 2:
            return
        old = drivers[-2 - index % (len(drivers) - 1)]
        zombie = Writer(Attempt(self.store, take_claim(self.store, "group", old.attempt.number, {})))
        self.writers.append(zombie)
        view = self.record.view()
        candidates = view.checkpoints()
        ref = candidates[back % len(candidates)] if candidates else None
        zombie.stalled = view.decide(zombie.attempt.number, ref, self.recorded(ref), last_accepted(self.store, view))
        self.stalled_decision_lands(0)
        self.event(0, checked=False)
        self.train(0, 2, checked=False)
        self.save(0, checked=False)
        assert all(ref.attempt != zombie.attempt.number for ref in self.record.view().checkpoints())

    # -------------------------------------------------------- claims

    @rule()
    def new_driver(self) -> None:
        self.writers.append(Writer(self.record.claim_driver()))

    @rule(index=INDEX)
    def new_group(self, index: int) -> None:
        driver = self.pick(index, lambda w: w.attempt.kind == "driver")
        assert driver is not None
        try:
            self.writers.append(Writer(self.record.claim_group(driver.attempt.number)))
        except FencedError:
            assert self.record.view().claims[max(self.record.view().claims)].number > driver.attempt.number

    @rule(index=INDEX)
    def group_claim_that_was_stalled(self, index: int) -> None:
        driver = self.pick(index, lambda w: w.attempt.kind == "driver")
        assert driver is not None
        claim = take_claim(self.store, "group", driver.attempt.number, {})
        self.writers.append(Writer(Attempt(self.store, claim)))

    # -------------------------------------------------------- decisions

    def recorded(self, ref: CheckpointRef | None) -> dict[str, dict[str, int]]:
        return json.loads(self.store.get(ref.manifest)) if ref else {}

    @rule(index=INDEX, back=INDEX)
    def restore(self, index: int, back: int) -> None:
        writer = self.pick(index, lambda w: w.step is None and w.stalled is None)
        if writer is None:
            return
        view = self.record.view()
        candidates = view.checkpoints()
        ref = candidates[back % len(candidates)] if candidates else None
        events = self.visible("events")
        try:
            writer.attempt.restore(ref, self.recorded(ref))
        except FencedError:
            return
        writer.step = ref.step if ref else 0
        assert self.visible("events") == events, "a decision loses no event that was there"

    @rule(index=INDEX, back=INDEX)
    def decide_and_stall(self, index: int, back: int) -> None:
        writer = self.pick(index, lambda w: w.step is None and w.stalled is None)
        if writer is None:
            return
        view = self.record.view()
        candidates = view.checkpoints()
        ref = candidates[back % len(candidates)] if candidates else None
        seen = last_accepted(self.store, view)
        writer.stalled = view.decide(writer.attempt.number, ref, self.recorded(ref), seen)

    @rule(index=INDEX)
    def stalled_decision_lands(self, index: int) -> None:
        writer = self.pick(index, lambda w: w.stalled is not None)
        if writer is None or writer.stalled is None:
            return
        decision, writer.stalled = writer.stalled, None
        self.store.put_if_absent(attempt_key(writer.attempt.number, "restore.json"), encode(decision.to_dict()))
        writer.step = decision.checkpoint.step if decision.checkpoint else 0

    # -------------------------------------------------------- work, with or without a check

    def may_write(self, writer: Writer, checked: bool) -> bool:
        if checked:
            try:
                writer.attempt.check()
            except FencedError:
                return False
        return True

    def log(self, writer: Writer, name: str, entry: dict[str, Any]) -> None:
        segment = Segment(name, writer.attempt.number, writer.logged[name] + 1)
        self.store.put(segment.key, json.dumps(entry).encode() + b"\n")
        writer.logged[name] += 1

    @rule(index=INDEX, steps=st.integers(1, 3), checked=st.booleans())
    def train(self, index: int, steps: int, checked: bool) -> None:
        writer = self.pick(index, lambda w: w.step is not None)
        if writer is None or writer.step is None or not self.may_write(writer, checked):
            return
        for _ in range(steps):
            writer.step += 1
            self.log(writer, "metrics", {"step": writer.step})

    @rule(index=INDEX, checked=st.booleans())
    def save(self, index: int, checked: bool) -> None:
        writer = self.pick(index, lambda w: w.step)
        if writer is None or not writer.step or not writer.logged["metrics"] or not self.may_write(writer, checked):
            return
        ref = CheckpointRef(writer.step, writer.attempt.number)
        logs = {"metrics": {"attempt": writer.attempt.number, "seq": writer.logged["metrics"]}}
        self.store.put_if_absent(ref.manifest, encode(logs))

    @rule(index=INDEX, checked=st.booleans())
    def event(self, index: int, checked: bool) -> None:
        writer = self.pick(index)
        if writer is not None and self.may_write(writer, checked):
            self.events += 1
            self.log(writer, "events", {"id": self.events})

    @rule(index=INDEX, which=INDEX)
    def quarantine(self, index: int, which: int) -> None:
        writer = self.pick(index)
        found = self.record.view().checkpoints()
        if writer is not None and len(found) > 2:
            key = f"markers/{QUARANTINE}.{found[which % len(found)].name}.a{writer.attempt.number:06d}.json"
            self.store.put(key, b"{}")

    # -------------------------------------------------------- retention: mark, check later, then delete

    @rule(index=INDEX)
    def mark(self, index: int) -> None:
        writer = self.pick(index, lambda w: w.step)
        view = self.record.view()
        usable = view.checkpoints()
        if writer is None or view.restore is None or view.restore.attempt != writer.attempt.number:
            return
        targets = [ref for ref in usable[2:] if ref != view.pinned()]
        if targets and self.may_write(writer, True):
            self.store.put(f"markers/{DELETE}.{targets[-1].name}.a{writer.attempt.number:06d}.json", b"{}")

    @rule(index=INDEX)
    def check_before_delete_and_stall(self, index: int) -> None:
        writer = self.pick(index, lambda w: w.step)
        view = self.record.view()
        if writer is not None and view.restore is not None and view.restore.attempt == writer.attempt.number:
            marked = [ref for ref in view.marked() if ref != view.pinned()]
            if self.may_write(writer, True):
                writer.doomed = marked

    @rule(index=INDEX)
    def stalled_delete_lands(self, index: int) -> None:
        writer = self.pick(index, lambda w: w.doomed)
        if writer is not None:
            for ref in writer.doomed:
                self.store.delete(ref.manifest)
            writer.doomed = []

    # -------------------------------------------------------- one history

    def visible(self, name: str) -> list[tuple[int, int]]:
        entries = read_log(self.store, self.record.view(), name)
        return sorted((e["step"] if name == "metrics" else e["id"], e["attempt"]) for e in entries)

    @precondition(lambda self: hasattr(self, "record"))
    @invariant()
    def every_step_counts_once(self) -> None:
        steps = self.visible("metrics")
        assert [step for step, _ in steps] == list(range(1, len(steps) + 1))
        attempt_of = dict(steps)
        view = self.record.view()
        for ref in view.checkpoints() + view.marked():
            assert attempt_of[ref.step] == ref.attempt, "a checkpoint that counts lies in the history that counts"
        if (point := view.pinned()) is not None:
            assert self.store.head(point.manifest) is not None, "the restored checkpoint is never deleted"

    @precondition(lambda self: hasattr(self, "record"))
    @invariant()
    def every_event_counts_at_most_once(self) -> None:
        ids = [number for number, _ in self.visible("events")]
        assert len(ids) == len(set(ids))

    @precondition(lambda self: hasattr(self, "record"))
    @invariant()
    def nothing_void_counts(self) -> None:
        view = self.record.view()
        attempts = {a for name in ("metrics", "events") for _, a in self.visible(name)}
        attempts |= {ref.attempt for ref in view.checkpoints()}
        assert not attempts & view.void
        assert view.restore is None or view.restore.attempt not in view.void


class AfterADecision(Interleavings):
    """What a writer writes after the decision that cut it is never seen, and all else is seen at once."""

    def log(self, writer: Writer, name: str, entry: dict[str, Any]) -> None:
        before = self.visible(name)
        super().log(writer, name, entry)
        view = self.record.view()
        cut = view.restore is not None and writer.attempt.number < view.restore.attempt
        driver = view.restore is not None and view.claims[view.restore.attempt].driver == writer.attempt.number
        if writer.attempt.number in view.void or (cut and not (driver and name == "events")):
            assert self.visible(name) == before
        else:
            assert len(self.visible(name)) == len(before) + 1, "what is not cut counts"


limits = settings(
    max_examples=50, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True
)
TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = limits
TestAfterADecision = AfterADecision.TestCase
TestAfterADecision.settings = limits

"""The decision log of a sweep: what happened and what was decided, durable before anything acts on it.

A logical log of the sweep's record, so all that holds for logs of a run holds for it: immutable segments named by
their attempt, a new driver accepts what stands there when it starts, a fenced one can write no more (``storage/``). A
line that was torn when its writer was killed does not count. Each entry carries a checksum over itself and all before
it, so that a log that was damaged in any other way is refused, never read as another one.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from pliant.errors import DamageError
from pliant.storage.attempts import Attempt
from pliant.storage.layout import LOGS, TRIALS, damaged
from pliant.storage.logs import read_log_after
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.store import Store
from pliant.storage.view import View
from pliant.tune.settings import SweepSettings
from pliant.tune.state import State
from pliant.tune.sweep import Sweep
from pliant.tune.types import Change, Close, Decision, End, Entry, Halt, Loss, Report, Resize, Suggestion

DECISIONS = "decisions"
"""Name of the log."""
KINDS: Mapping[str, type[Entry]] = {
    "suggestion": Suggestion,
    "report": Report,
    "decision": Decision,
    "loss": Loss,
    "end": End,
    "resize": Resize,
    "close": Close,
    "halt": Halt,
    "settings": Change,
}
_NAMES = {kind: name for name, kind in KINDS.items()}
_ADDED = frozenset({"kind", "time", "chain", "attempt"})
_NEVER_S = 1e6


@dataclass(frozen=True)
class Logged:
    """An entry as it stands in the log.

    Attributes:
        time: when it was logged, seconds since 1970. attempt: of the driver that logged it.
        chain: checksum over it and all before it.
    """

    entry: Entry
    time: float
    attempt: int
    chain: str


def to_dict(entry: Entry) -> dict[str, Any]:
    """An entry as JSON values: its ``kind``, and the fields of its dataclass."""
    return {"kind": _NAMES[type(entry)], **asdict(entry)}


def from_dict(value: Mapping[str, Any]) -> Entry:
    """The inverse of ``to_dict``; what the log adds is passed over.

    Raises:
        ValueError: it is no entry.
    """
    kind = KINDS.get(value.get("kind", ""))
    if kind is None:
        raise ValueError(f"kind {value.get('kind')!r} is unknown")
    given = {name: content for name, content in value.items() if name not in _ADDED}
    if unknown := given.keys() - {field.name for field in fields(kind)}:
        raise ValueError(f"{value['kind']} has no {', '.join(sorted(unknown))}")
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(str(error)) from None


class DecisionLog:
    """Writes a driver's part of the log.

    Args:
        store: of the sweep's record.
        attempt: the driver's, whose restore decision has been made.
        chain: of the last entry that counts; empty before the first.
        clock: seconds since 1970.
    """

    def __init__(self, store: Store, attempt: Attempt, chain: str = "", clock: Callable[[], float] = time.time) -> None:
        self._writer = LogWriter(store, attempt, DECISIONS, every_s=_NEVER_S)
        self._chain, self._clock = chain, clock

    def record(self, entries: Sequence[Entry]) -> None:
        """Returns when the entries are durable.

        Raises:
            StorageError: they may not be. Nothing that follows from them may be done.
            FencedError: another driver has claimed the sweep.
        """
        now = self._clock()
        for entry in entries:
            value = {**to_dict(entry), "time": now}
            self._chain = _link(self._chain, value)
            self._writer.append({**value, "chain": self._chain})
        self._writer.flush()

    def close(self) -> None:
        """Ends its thread; raises as ``record``."""
        self._writer.close()


class DecisionReader:
    """Reads the log as it grows.

    Args:
        record: of the sweep.
    """

    def __init__(self, record: RunRecord) -> None:
        self._store = record.store
        self._positions: dict[int, int] = {}
        self._number, self._chain = 0, ""

    def read(self, view: View) -> Iterator[Logged]:
        """The entries that count in a view and were not read before, in order.

        Raises:
            DamageError: a part of the log is damaged or missing, or what was read before does not count any more.
        """
        location = f"{self._store.uri}/{LOGS}/{DECISIONS}"
        try:
            for attempt, seq, value in read_log_after(self._store, view, DECISIONS, dict(self._positions)):
                del value["attempt"]
                number, found = self._number + 1, value.pop("chain", None)
                chain = _link(self._chain, value)
                if found != chain:
                    text = f"entry {number}, of attempt {attempt}, or the one before it is not what was written"
                    raise damaged(location, text)
                try:
                    logged = Logged(from_dict(value), float(value["time"]), attempt, chain)
                except (KeyError, ValueError) as error:
                    raise damaged(location, f"entry {number}, of attempt {attempt}: {error}") from error
                self._positions[attempt], self._number, self._chain = seq, number, chain
                yield logged
        except DamageError as error:
            raise DamageError("sweep.log-damaged", error.message, hint=_HINT, location=error.location) from error


def read_decisions(record: RunRecord) -> Iterator[Logged]:
    """All entries of a sweep that count, in order.

    Raises:
        DamageError: a part of the log is damaged or missing.
    """
    return DecisionReader(record).read(record.view())


def read_entries(record: RunRecord) -> list[Entry]:
    """As ``read_decisions``, the entries alone."""
    return [logged.entry for logged in read_decisions(record)]


def open_log(record: RunRecord, attempt: Attempt) -> tuple[DecisionLog, list[Entry]]:
    """Makes a driver's restore decision; returns its log, and the entries before it.

    Raises:
        DamageError: as ``read_decisions``, or the log is gone although there are trials. The attempt has ended then.
        FencedError: another driver has claimed the sweep.
    """
    attempt.restore(None)
    try:
        found = list(read_decisions(record))
        if not found and (runs := sorted(record.store.child(TRIALS).folders())):
            there = "is a run" if len(runs) == 1 else f"are {len(runs)} runs"
            message = f"the sweep's decision log is gone, and there {there} of its trials"
            location = f"{record.store.uri}/{LOGS}/{DECISIONS}"
            raise DamageError("sweep.log-damaged", message, hint=_HINT, location=location)
    except DamageError as error:
        attempt.stop("damage", error.message)
        raise
    log = DecisionLog(record.store, attempt, found[-1].chain if found else "")
    return log, [logged.entry for logged in found]


# ---------------------------------------------------------------- replay


def replay(entries: Iterable[Entry], state: State) -> None:
    """Brings a fresh sweep to where the entries lead."""
    for entry in entries:
        state.apply(entry)


@dataclass(frozen=True)
class Difference:
    """Where a log and what follows from it part.

    Attributes:
        number: of the entry, from 1.
        logged: the entry. expected: what would have followed; None: nothing before another report, loss or start.
    """

    number: int
    logged: Entry
    expected: Entry | None

    def __str__(self) -> str:
        expected = "nothing" if self.expected is None else json.dumps(to_dict(self.expected))
        return f"entry {self.number} is {json.dumps(to_dict(self.logged))}, and {expected} follows from those before it"


Build = Callable[[SweepSettings, Mapping[str, Any] | None], Sweep]
"""A fresh sweep with these settings and, unless None, this narrowed space."""


def verify(entries: Sequence[Entry], build: Build) -> Difference | None:
    """The first decision or suggestion that does not follow from what stands before it; None when all do.

    Each start that changed something had a scheduler and a searcher of its own, to which all before it was replayed; so
    has each here.
    """
    starts = [number for number, entry in enumerate(entries) if isinstance(entry, Change)]
    space: Mapping[str, Any] | None = None
    for start, end in zip(starts, [*starts[1:], len(entries)], strict=True):
        change = entries[start]
        if not isinstance(change, Change):
            continue
        space = space if change.space is None else change.space
        sweep = build(SweepSettings.model_validate(change.settings), space)
        replay(entries[: start + 1], sweep)
        for number, entry in enumerate(entries[start + 1 : end], start + 2):
            if not sweep.follows(entry):
                return Difference(number, entry, sweep.proposal(entry))
            sweep.apply(entry)
    return None


# ---------------------------------------------------------------- parts

_HINT = (
    "restore it from a copy of the sweep; one whose log cannot be read is never started over. Its trials are runs of"
    " their own, below trials/, and are whole"
)


def _link(chain: str, value: Mapping[str, Any]) -> str:
    """Checksum of an entry and all before it. JSON gives back the keys in their order and the numbers as they were."""
    return f"{zlib.crc32(json.dumps(value, separators=(',', ':')).encode(), int(chain or '0', 16)):08x}"

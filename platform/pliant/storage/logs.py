"""Reads logs: what counts of the segments of all attempts, in order."""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from operator import itemgetter
from typing import Any

from pliant.errors import DamageError
from pliant.storage.layout import LOGS, Segment, damaged, parse_segment
from pliant.storage.store import Store
from pliant.storage.view import View

_TIMED = frozenset({"events"})
"""Logs with several writers at a time, merged by the entries' ``time``; others follow the order of attempts."""
_AHEAD = 32
_END_BYTES = 64 * 2**10


def read_log(store: Store, view: View, name: str, *, of: Container[int] | None = None) -> Iterator[dict[str, Any]]:
    """The entries of a log that count in a view, each with the ``attempt`` that wrote it.

    Args:
        of: these attempts' alone; default: all.

    Raises:
        DamageError: a segment cannot be read, or entries that count are missing.
    """
    parts = [
        _entries(store, view, name, attempt, segments)
        for attempt, segments in _segments(store, view, name).items()
        if of is None or attempt in of
    ]
    if name not in _TIMED:
        return (entry for part in parts for _, _, entry in part)
    return (entry for _, _, entry in heapq.merge(*parts, key=lambda item: item[0]))


def read_log_after(
    store: Store, view: View, name: str, positions: Mapping[int, int]
) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Attempt, sequence number and entry of what counts and comes after what was read before, attempt by attempt.

    Args:
        positions: by attempt, the last sequence number that was read.

    Raises:
        DamageError: as ``read_log``.
    """
    for attempt, segments in _segments(store, view, name).items():
        seen, limit = positions.get(attempt, 0), view.accepts_log(name, attempt)
        if limit is not None and seen >= limit:
            continue
        passed = max(sum(segment.first <= seen + 1 for segment in segments) - 1, 0)
        before = segments[passed].first - 1 if passed else 0
        for _, seq, entry in _entries(store, view, name, attempt, segments[passed:], before):
            if seq > seen:
                yield attempt, seq, entry


def read_superseded(store: Store, view: View, name: str) -> Iterator[dict[str, Any]]:
    """The entries of a log that were written and do not count, each with its ``attempt``: work that was done again.

    Nothing is decided by them, so a line that cannot be read is passed over.
    """
    found = [s for info in store.list(f"{LOGS}/{name}") if (s := parse_segment(info.key))]
    segments = sorted(s for s in found if s.attempt in view.claims)  # the view knows nothing of later attempts
    for segment, after in pairwise([*segments, None]):
        if segment is None or (limit := view.accepts_log(name, segment.attempt)) is None:
            continue
        if after is not None and after.attempt == segment.attempt and after.first <= limit + 1:
            continue
        with suppress(FileNotFoundError):  # removed at this moment
            lines = _lines(store, segment, store.get(segment.key), last=True)
            for line in lines[max(limit + 1 - segment.first, 0) :]:
                with suppress(DamageError):
                    yield {**_parse(store, segment, line), "attempt": segment.attempt}


def last_entry(store: Store, view: View, name: str) -> dict[str, Any] | None:
    """The newest entry of a log of steps that counts; None before the first. Reads one segment, of one that may still
    grow only the end.

    Raises:
        DamageError: the segment cannot be read.
    """
    for attempt, segments in reversed(_segments(store, view, name).items()):
        limit = view.accepts_log(name, attempt)
        for segment in reversed(segments):
            if limit is not None:
                lines = _lines(store, segment, store.get(segment.key), last=True)[: limit - segment.first + 1]
            else:
                lines = _last_lines(store, segment)
            if lines:
                return {**_parse(store, segment, lines[-1]), "attempt": attempt}
    return None


def last_written(store: Store, name: str) -> dict[int, dict[str, Any]]:
    """The newest entry that each attempt has written of a log, whether it counts or not. Reads the end of a segment of
    each attempt; nothing is decided by them, so what cannot be read is passed over."""
    found: dict[int, list[Segment]] = {}
    for info in store.list(f"{LOGS}/{name}"):
        if segment := parse_segment(info.key):
            found.setdefault(segment.attempt, []).append(segment)

    def newest(segments: list[Segment]) -> dict[str, Any] | None:
        for segment in sorted(segments, reverse=True):
            with suppress(FileNotFoundError, DamageError):
                if lines := _last_lines(store, segment):
                    return _parse(store, segment, lines[-1])
        return None

    with ThreadPoolExecutor(8) as pool:
        entries = zip(found, pool.map(newest, found.values()), strict=True)
        return {attempt: entry for attempt, entry in sorted(entries, key=itemgetter(0)) if entry is not None}


def _last_lines(store: Store, segment: Segment) -> list[bytes]:
    """Complete lines at the end of a segment: at least one, where there is one."""
    info = store.head(segment.key)
    size = info.size if info is not None else 0
    if size > _END_BYTES:
        lines = _lines(store, segment, store.get_range(segment.key, size - _END_BYTES, size), last=True)
        if len(lines) > 1:
            return lines[1:]  # the first began before the end that was read
    return _lines(store, segment, store.get(segment.key), last=True)


def last_accepted(store: Store, view: View) -> dict[str, dict[int, int]]:
    """Of every log, the last sequence number that counts now, by attempt."""
    names = {s.log for o in store.list(LOGS) if (s := parse_segment(o.key))}
    found: dict[str, dict[int, int]] = {}
    for name in sorted(names):
        for attempt, segments in _segments(store, view, name).items():
            limit = view.accepts_log(name, attempt)
            if limit is None and segments:
                lines = _lines(store, segments[-1], store.get(segments[-1].key), last=True)
                limit = segments[-1].first + len(lines) - 1
            if limit:
                found.setdefault(name, {})[attempt] = limit
    return found


def _segments(store: Store, view: View, name: str) -> dict[int, list[Segment]]:
    """Segments by attempt, those that start above the limit left out; attempts of which nothing counts too."""
    found: dict[int, list[Segment]] = {a: [] for a in view.claims if view.accepts_log(name, a)}
    for info in store.list(f"{LOGS}/{name}"):
        if segment := parse_segment(info.key):
            limit = view.accepts_log(name, segment.attempt)
            if limit is None or segment.first <= limit:
                found.setdefault(segment.attempt, []).append(segment)
    return {attempt: sorted(found[attempt]) for attempt in sorted(found)}


def _entries(
    store: Store, view: View, name: str, attempt: int, segments: list[Segment], before: int = 0
) -> Iterator[tuple[float, int, dict[str, Any]]]:
    """(time, seq, entry) of one attempt. Times never fall, so that merging keeps the attempt's own order.

    Args:
        before: sequence number of the last entry before the segments.
    """
    limit = view.accepts_log(name, attempt)
    seq, time = before, 0.0
    for segment, data in _fetch(store, segments):
        if segment.first != seq + 1:
            raise damaged(
                f"{store.uri}/{segment.key}", f"entries {seq + 1} to {segment.first - 1} before it are missing"
            )
        for line in _lines(store, segment, data, last=segment == segments[-1]):
            if limit is not None and seq == limit:
                return
            seq += 1
            entry = _parse(store, segment, line)
            time = max(time, float(entry.get("time", 0.0)))
            yield time, seq, {**entry, "attempt": attempt}
    if limit is not None and seq < limit:
        where = f"{store.uri}/{LOGS}/{name}"
        raise damaged(where, f"attempt {attempt} should have {limit} entries here, and has {seq}")


def _fetch(store: Store, segments: Iterable[Segment]) -> Iterator[tuple[Segment, bytes]]:
    """Segments with their bytes, some read ahead: a long run has thousands of small ones."""
    waiting: deque[tuple[Segment, Future[bytes]]] = deque()
    with ThreadPoolExecutor(8) as pool:
        try:
            for segment in segments:
                waiting.append((segment, pool.submit(store.get, segment.key)))
                if len(waiting) > _AHEAD:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()


def _lines(store: Store, segment: Segment, data: bytes, *, last: bool) -> list[bytes]:
    """Complete lines. The end of an attempt's last segment may be torn: its writer was killed or is writing."""
    complete, _, torn = data.rpartition(b"\n")
    if torn and not last:
        raise damaged(f"{store.uri}/{segment.key}", "its last line is incomplete, and more follows in the next segment")
    return complete.split(b"\n") if complete else []


def _parse(store: Store, segment: Segment, line: bytes) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError as error:
        raise damaged(f"{store.uri}/{segment.key}", f"a line is not JSON ({error})") from error
    if not isinstance(entry, dict):
        raise damaged(
            f"{store.uri}/{segment.key}", f"a line holds a {type(entry).__name__} where an object is expected"
        )
    return entry

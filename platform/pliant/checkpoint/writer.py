"""Taking checkpoints beside training: the step waits for a copy to host memory, the rest is done by a thread.

The thread writes the shards, computes the parameter digest and, on rank 0, puts the manifest last; in between it rests,
as long as nobody waits for it (pace.py). All of its collectives use a group of its own. A save that storage refuses is
reported and tried again from the copy, with growing pauses, until it succeeds, a newer save takes its place, or the
writer is closed; training goes on.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist

from pliant.checkpoint.dcp import StateSaver
from pliant.checkpoint.digest import NamedShard, parameter_digest
from pliant.checkpoint.manifest import CheckpointManifest, FileEntry, ManifestFields
from pliant.checkpoint.pace import Pace
from pliant.checkpoint.ranks import Ranks
from pliant.checkpoint.staging import HostCopy
from pliant.errors import PliantError, StorageError
from pliant.storage.layout import MANIFEST, CheckpointRef
from pliant.storage.store import Store

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_NICENESS = 10
_EXIT_GRACE = 60.0
"""Seconds that the end of the process waits for a save, where the writer was not closed."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SaveResult:
    """How one try of a save ended; the same on every rank but for its seconds.

    Attributes:
        outcome: ``committed``; ``failed``, to be tried again from the same copy; or ``dropped``: a failed one that
            a newer save or the end of the run has replaced.
        reason: why it failed; empty for a committed one.
        tries: number of this try, from 1.
        staging_s: seconds that training waited for the copy to host memory.
        waited_s: seconds that training waited before that for an earlier save to end.
        background_s: seconds the background thread took for this try.
        rested_s: of those, how long it only rested; a save that is waited for does not.
        bytes: size of the checkpoint; 0 unless committed.
        manifest: None unless committed.
    """

    ref: CheckpointRef
    outcome: Literal["committed", "failed", "dropped"]
    reason: str
    tries: int
    staging_s: float
    waited_s: float
    background_s: float
    rested_s: float
    bytes: int
    manifest: CheckpointManifest | None


@dataclass
class _Job:
    """One save on its way through the background thread."""

    ref: CheckpointRef
    state: dict[str, Any] | Exception  # why it could not be copied
    digest_names: list[str]
    fields: ManifestFields
    pace: Pace
    before_commit: Callable[[], None]
    on_commit: Callable[[SaveResult], None]
    staging_s: float
    waited_s: float
    tries: int = 0
    digest: str | None = None


class CheckpointWriter:
    """Saves checkpoints of one attempt. Every method is called by all ranks at the same point of the loop.

    Args:
        store: the run's storage.
        attempt: number of the attempt, part of every checkpoint's name.
        check: raises FencedError when a newer attempt has claimed the run; called on rank 0 before the commit.
        group: gloo group of all ranks, for this writer alone; None for a single process.
    """

    def __init__(
        self, store: Store, attempt: int, *, check: Callable[[], None], group: dist.ProcessGroup | None
    ) -> None:
        self._store = store
        self._attempt = attempt
        self._check = check
        self._ranks = Ranks(group)
        self._saver = StateSaver(self._ranks)
        self._copy = HostCopy()
        self._pace = Pace()  # of the newest save
        self._thread: threading.Thread | None = None
        self._state = threading.Condition()
        self._busy = False  # a try is running, or what follows a commit
        self._unsettled = False  # the newest save has no result yet
        self._give_up = threading.Event()  # a failed save is not to be tried again
        self._error: PliantError | None = None
        self._results: list[SaveResult] = []
        self._last: SaveResult | None = None
        atexit.register(self.close, _EXIT_GRACE)

    @property
    def busy(self) -> bool:
        """Whether ``save`` would wait for an earlier one. Ranks may differ: let rank 0 decide for all."""
        return self._busy

    def reserve(self, state: dict[str, Any]) -> None:
        """Prepares the memory for copies of this state in the background, so that the first save is fast too.

        The state must keep its shapes; its values are not read. Local to this rank.
        """
        self._join()
        self._start(lambda: self._copy.reserve(state), "checkpoint-reserve")

    def save(
        self,
        *,
        step: int,
        state: dict[str, Any],
        digest_names: list[str],
        fields: ManifestFields,
        pace: Pace | None = None,
        before_commit: Callable[[], None] = lambda: None,
        on_commit: Callable[[SaveResult], None] = lambda result: None,
    ) -> None:
        """Copies the state and returns; the checkpoint is written in the background.

        At most one save is in flight: a running one is waited for (``busy`` tells beforehand), a failed one that
        waits to be tried again is dropped for this newer one.

        Args:
            step: completed steps.
            state: nested dicts of DTensors, tensors and plain values, the same keys on every rank.
            digest_names: keys of ``state["model"]`` over which the parameter digest is taken.
            fields: what else the manifest records.
            pace: of the background thread on this rank, until somebody waits; None: it never rests.
            before_commit: called on rank 0 in the background, after the shards and before the manifest: makes
                durable what the manifest refers to (logs). A StorageError counts as a failed save.
            on_commit: called on rank 0 in the background after the commit (retention). A StorageError is logged;
                other errors are raised by ``poll`` on all ranks.

        Raises:
            PliantError: the background thread met an error that trying again does not mend.
        """
        begin = time.perf_counter()
        self._give_up.set()
        self._join()
        self._raise()
        copied_from = time.perf_counter()
        copied = _attempt_copy(self._copy, state)
        now = time.perf_counter()
        self._pace = pace or Pace()
        job = _Job(
            CheckpointRef(step, self._attempt), copied, sorted(digest_names), fields, self._pace, before_commit,
            on_commit, staging_s=now - copied_from, waited_s=copied_from - begin,
        )  # fmt: skip
        self._give_up.clear()
        self._busy = self._unsettled = True
        self._start(lambda: self._run(job), f"checkpoint-{step}")

    def poll(self) -> list[SaveResult]:
        """Results since the last call. Raises FencedError and errors that trying again does not mend."""
        self._raise()
        with self._state:
            results, self._results = self._results, []
        return results

    def wait(self, timeout: float | None = None) -> SaveResult | None:
        """Waits until the running try, which hurries, has a result and returns it; ``poll`` still returns it too.

        Returns:
            None when there was no save or the timeout (seconds) has passed. After ``failed`` the save waits to be
            tried again, and this returns that result at once until the next try has begun.
        """
        self._pace.hurry()
        with self._state:
            ended = self._state.wait_for(lambda: not self._unsettled, timeout)
        self._raise()
        return self._last if ended else None

    def close(self, timeout: float | None = None) -> bool:
        """Lets a running try end, gives up a failed save, and joins the thread.

        Returns:
            False when the thread has not ended within ``timeout`` seconds; it does not keep the process alive.
        """
        atexit.unregister(self.close)
        self._give_up.set()
        return self._join(timeout)

    def _start(self, work: Callable[[], None], name: str) -> None:
        def run() -> None:
            _yield_to_training()
            work()

        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def _join(self, timeout: float | None = None) -> bool:
        if self._thread is not None:
            self._pace.hurry()
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
            self._thread = None
        return True

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error

    # ------------------------------------------------------------------ in the background thread

    def _run(self, job: _Job) -> None:
        try:
            self._save_until_committed(job)
        except PliantError as error:
            self._end(error)
        except Exception as error:
            _log.exception("checkpoint of step %d failed", job.ref.step)
            self._end(_broken_off(error, job.ref))
        finally:
            self._busy = False

    def _save_until_committed(self, job: _Job) -> None:
        pause = _FIRST_PAUSE
        while not self._try(job):
            self._busy = False
            self._give_up.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
            # Ranks wake at different moments: they go on together or not at all.
            if any(self._ranks.gather("retrying the checkpoint", self._give_up.is_set)):
                self._publish(job, "dropped", self._last.reason if self._last else "")
                return
            self._busy = True
            with self._state:
                self._unsettled = True

    def _try(self, job: _Job) -> bool:
        job.tries += 1
        began, rested_s = time.perf_counter(), job.pace.rested_s

        def took() -> tuple[float, float]:
            return time.perf_counter() - began, job.pace.rested_s - rested_s

        try:
            manifest = self._write(job)
        except StorageError as error:
            _log.warning("checkpoint of step %d failed and will be tried again: %s", job.ref.step, error)
            self._publish(job, "failed", str(error), *took())
            return False
        result = self._publish(job, "committed", "", *took(), manifest)
        try:
            self._ranks.at_root("work after the checkpoint", lambda: job.on_commit(result))
        except StorageError as error:
            _log.warning("after the checkpoint of step %d: %s", job.ref.step, error)
        return True

    def _write(self, job: _Job) -> CheckpointManifest:
        store = self._store.child(job.ref.prefix)
        self._ranks.gather("copying the state", lambda: _copied(job) and None)
        existing = self._ranks.at_root("looking for the checkpoint", lambda: self._existing(store, job))
        if existing is not None:
            return existing
        files = self._saver.save(_copied(job), store, job.pace)
        if job.digest is None:
            job.digest = parameter_digest(_named(job), self._ranks.group, self._ranks.rank, job.pace) or ""
        return self._ranks.at_root("committing the checkpoint", lambda: self._commit(store, job, files))

    def _existing(self, store: Store, job: _Job) -> CheckpointManifest | None:
        """The manifest, when an earlier try or an earlier save of this step has committed already."""
        if store.head(MANIFEST) is None:
            return None
        manifest = CheckpointManifest.from_bytes(store.get(MANIFEST), job.ref)
        if manifest.state != json.loads(json.dumps(dict(job.fields.state))):
            message = f"step {job.ref.step} was saved before in this attempt, with another state"
            raise PliantError("checkpoint.exists", message, location=job.ref.prefix)
        return manifest

    def _commit(self, store: Store, job: _Job, files: dict[str, FileEntry]) -> CheckpointManifest:
        manifest = CheckpointManifest(
            step=job.ref.step,
            attempt=job.ref.attempt,
            files=files,
            state=dict(job.fields.state),
            parameter_digest=job.digest or "",
            data_digest=job.fields.data_digest,
            config_digest=job.fields.config_digest,
            world_size=self._ranks.size,
            code_version=job.fields.code_version,
            torch_version=str(torch.__version__),
            logs=dict(job.fields.logs),
            metrics=dict(job.fields.metrics),
            created=time.time(),
        )
        job.before_commit()
        self._check()
        if store.put_if_absent(MANIFEST, manifest.to_bytes()):
            return manifest
        # An earlier try's put may arrive late; the same state gives the same files, so its manifest is as good.
        existing = self._existing(store, job)
        if existing is None or existing.files != files:
            raise PliantError("checkpoint.exists", "another writer has committed it", location=job.ref.prefix)
        return existing

    def _publish(
        self,
        job: _Job,
        outcome: Literal["committed", "failed", "dropped"],
        reason: str,
        background_s: float = 0.0,
        rested_s: float = 0.0,
        manifest: CheckpointManifest | None = None,
    ) -> SaveResult:
        size = manifest.total_bytes if manifest else 0
        result = SaveResult(
            job.ref, outcome, reason, job.tries, job.staging_s, job.waited_s, background_s, rested_s, size, manifest
        )  # fmt: skip
        with self._state:
            self._last = result
            self._results.append(result)
            self._unsettled = False
            self._state.notify_all()
        return result

    def _end(self, error: PliantError) -> None:
        with self._state:
            self._error = error
            self._unsettled = False
            self._state.notify_all()


def _broken_off(error: Exception, ref: CheckpointRef) -> PliantError:
    """A collective failed: the group cannot be used any more, so that trying again would not help."""
    if "Timed out" not in str(error):  # gloo's errors have no types
        message = f"saving broke off, probably because another worker is gone: {type(error).__name__}: {error}"
        return PliantError("checkpoint.broken-off", message, location=ref.prefix)
    return PliantError(
        "checkpoint.peer-silent",
        f"saving broke off: another worker does not answer ({error})",
        hint="resume the run; checkpoint.peer_timeout sets how long is waited beyond run.store.retry_for",
        location=ref.prefix,
    )


def _yield_to_training() -> None:
    """Where cores are short, training goes first: on Linux a niceness belongs to a thread, not to the process."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.nice(_NICENESS)


def _attempt_copy(copy: HostCopy, state: dict[str, Any]) -> dict[str, Any] | Exception:
    """An error here is one rank's: it is raised where all ranks hear of it."""
    try:
        return copy.take(state)
    except Exception as error:
        return error


def _copied(job: _Job) -> dict[str, Any]:
    if isinstance(job.state, Exception):
        raise job.state
    return job.state


def _named(job: _Job) -> list[NamedShard]:
    model = _copied(job)["model"]
    return [(name, model[name].data, model[name].shape) for name in job.digest_names]

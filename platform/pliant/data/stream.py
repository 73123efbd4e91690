"""Reads windows through Ray Data: one read task per window, in the order in which a rank needs them.

The only file that touches Ray Data. What Ray Data is told, and why:

- a ``Datasource`` of our own, since its Parquet reader starts actors and gives row groups no order;
- as many blocks as tasks and no target block size, else it cuts and joins what a task returns;
- ``preserve_order``, else blocks come as they finish;
- fractional CPUs per task and limits per rank, else the ranks' executions starve each other or the workers;
- some hundreds of windows per execution: it puts every task into the object store before it starts the first;
- a callback that holds its scheduling loop while nobody waits for a window: the loop asks without a pause for what
  has been read and may not be handed on yet, which takes most of a core away from training.

Each rank has executions of its own, one after the other; none of Ray Data's state has to survive.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from queue import SimpleQueue
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import pyarrow as pa
import ray
import ray.data
from ray.data._internal.execution.execution_callback import ExecutionCallback
from ray.data.block import BlockMetadata
from ray.exceptions import RayTaskError

from pliant.data.manifest import Manifest
from pliant.data.memory import RayBudget
from pliant.data.order import Window, window_permutation
from pliant.data.reading import ReadSpec, ShardPiece, locate, read_window
from pliant.errors import PliantError

_SECOND_CHUNK = 64
"""Windows of the second execution, few so that it is soon prepared; each one after it has four times as many …"""
_LARGEST_CHUNK = 2048
"""… up to this many."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.001, 0.05
"""Of the scheduling loop while no window is wanted. Each is twice the one before, since what is left to do then is to
fill the look-ahead, and soon nothing."""
_SHARE_WITHIN_S = 1.0
_CLOSE_WITHIN_S = 10.0
_SILENCED = {
    "ray.data._internal.progress": logging.ERROR,  # "Progress bars disabled"
    "ray.data._internal.execution.streaming_executor_state": logging.CRITICAL,  # tracebacks that are raised as well
    "ray.data._internal.execution.resource_manager": logging.ERROR,  # held on purpose, it takes itself for starved
}


class RayReader:
    """Windows in the order of their schedule, read by Ray tasks. A window source for a LaneStream.

    The first execution reads what the first batch needs and nothing else. Each further one is prepared while the one
    before it runs, and begins to read when that one's last window has been handed over: what is read ahead is never
    more than one execution's.

    Args:
        manifest: the dataset.
        spec: what to read.
        schedule: windows in order of need; may be endless.
        seed: of the order within windows; None keeps manifest order.
        budget: how far is read ahead.
        cpus: CPUs of one read task.
        window_bytes: of the largest window, decoded.
        first: windows that the first batch needs.
    """

    def __init__(
        self,
        manifest: Manifest,
        spec: ReadSpec,
        schedule: Iterator[Window],
        *,
        seed: int | None,
        budget: RayBudget,
        cpus: float,
        window_bytes: int,
        first: int,
    ) -> None:
        self._manifest = manifest
        self._spec = spec
        self._schedule = schedule
        self._seed = seed
        self._window_bytes = window_bytes
        self._dataset = partial(_dataset, budget=budget, cpus=cpus, window_bytes=window_bytes)
        self._chunk_sizes = _chunk_sizes(first)
        self._closed = False
        self._lock = threading.Lock()  # nothing is prepared once it is closed
        self._executions: deque[_Execution] = deque()
        self._prepare_next()
        self._begin()

    def __next__(self) -> tuple[Window, pa.Table]:
        """The next window of the schedule.

        Raises:
            StopIteration: the schedule has ended.
            PliantError: the window could not be read; so does every further call.
            RuntimeError: the reader was closed, by this thread or another.
        """
        if not self._executions:
            raise StopIteration
        current = self._executions[0]
        table = current.take()
        window = current.windows.popleft()
        if len(self._executions) == 1 and len(current.windows) <= current.size // 2:
            self._prepare_next()  # in good time, so that it is not waited for
        if not current.windows:
            self._executions.popleft().close()
            self._begin()
        return window, table

    def release(self) -> None:
        """Nothing to do: Ray Data counts what waits, and a window's memory goes with its last reference."""

    def close(self) -> None:
        """Ends the executions and their tasks. May be called from another thread than the rest, and twice."""
        with self._lock:
            self._closed = True
        for execution in list(self._executions):
            execution.close()

    def _prepare_next(self) -> None:
        with self._lock:
            windows = [] if self._closed else list(islice(self._schedule, next(self._chunk_sizes)))
            if windows:
                source = LaneDatasource(self._manifest, self._spec, windows, self._seed, self._window_bytes)
                self._executions.append(_Execution(partial(self._dataset, source), windows))

    def _begin(self) -> None:
        if self._executions:
            self._executions[0].begin()


def _chunk_sizes(first: int) -> Iterator[int]:
    yield first
    size = _SECOND_CHUNK
    while True:
        yield size
        size = min(4 * size, _LARGEST_CHUNK)


class _Execution:
    """One execution of Ray Data over some windows, driven by a thread that stays one table ahead.

    Attributes:
        windows: those not handed over yet.
        size: windows altogether.
    """

    _numbers = count()
    alive: ClassVar[WeakValueDictionary[int, _Execution]] = WeakValueDictionary()
    """By number, since what Ray Data is told must be picklable."""

    def __init__(self, dataset: Callable[[int], Any], windows: list[Window]) -> None:
        self.windows = deque(windows)
        self.size = len(windows)
        self._tables: SimpleQueue[pa.Table | BaseException] = SimpleQueue()
        self._room = threading.Semaphore()
        self._begun = threading.Event()
        self._wanted = threading.Event()
        self._pause_s = _FIRST_PAUSE_S
        self._closed = False
        self._executor: Any = None
        number = next(self._numbers)
        self.alive[number] = self
        self._thread = threading.Thread(
            target=self._run, args=(partial(dataset, number), list(windows)), name="pliant-ray-data", daemon=True
        )
        self._thread.start()

    def begin(self) -> None:
        """Lets it read."""
        self._begun.set()

    def take(self) -> pa.Table:
        item = self._tables.get()
        if isinstance(item, BaseException):
            self._tables.put(item)  # for whoever asks again
            raise item
        self._room.release()
        return item

    def close(self) -> None:
        self._closed = True
        self._tables.put(RuntimeError("the reader is closed"))
        self._room.release()
        self._begun.set()
        self._wanted.set()
        self._shut_down()  # frees the thread if it waits for a task
        self._thread.join(_CLOSE_WITHIN_S)

    def wait_to_begin(self, executor: Any) -> None:
        """Called by Ray Data's executor when it is ready to start its tasks."""
        self._executor = executor
        _await_share(executor)
        self._begun.wait()

    def wait_until_wanted(self) -> None:
        """Called by Ray Data's executor after each turn of its loop."""
        self._pause_s = _FIRST_PAUSE_S if self._wanted.wait(self._pause_s) else min(2 * self._pause_s, _LONGEST_PAUSE_S)

    def _run(self, dataset: Callable[[], Any], windows: list[Window]) -> None:
        try:
            bundles = dataset().iter_internal_ref_bundles()
            for window in windows:
                self._room.acquire()
                if self._closed:
                    break
                self._wanted.set()
                table = _table(next(bundles, None), window)
                self._wanted.clear()
                self._tables.put(table)
            self._wanted.set()  # the loop has to see that all is done
        except BaseException as error:
            self._tables.put(_own_error(error))
        finally:
            self._shut_down()

    def _shut_down(self) -> None:
        """Ends the executor and cancels its tasks, if it has been started."""
        if self._executor is not None:
            self._executor.shutdown(force=True)


class _Throttle(ExecutionCallback):
    """Ray Data makes one for each execution, and calls it from the execution's own threads."""

    def __init__(self, execution: int) -> None:
        self._execution = _Execution.alive.get(execution)

    def before_execution_starts(self, executor: Any) -> None:
        if self._execution is not None:
            self._execution.wait_to_begin(executor)

    def on_execution_step(self, executor: Any) -> None:
        if self._execution is not None:
            self._execution.wait_until_wanted()


def _dataset(source: LaneDatasource, execution: int, *, budget: RayBudget, cpus: float, window_bytes: int) -> Any:
    """A dataset of one block per read task, in their order; nothing runs before it is iterated over."""
    _be_quiet()
    dataset = ray.data.read_datasource(source, override_num_blocks=len(source.tasks), num_cpus=cpus)
    context = dataset.context
    context.target_max_block_size = None
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.custom_execution_callback_classes = [partial(_Throttle, execution)]
    context.execution_options.preserve_order = True
    context.execution_options.resource_limits = ray.data.ExecutionResources.for_limits(
        cpu=budget.tasks * cpus,
        object_store_memory=budget.object_store_bytes(window_bytes),
    )
    return dataset


def _await_share(executor: Any) -> None:
    """Waits until the executor knows its share of the cluster.

    It asks for it in the background and once a second: until it has looked at the first answer, its share is nothing,
    and it reads one window at a time. Where nothing is left for reading, that is how it will go on.
    """
    give_up = time.monotonic() + _SHARE_WITHIN_S
    while executor._cluster_autoscaler.get_total_resources().is_zero() and time.monotonic() < give_up:
        time.sleep(_SHARE_WITHIN_S / 50)
    executor._resource_manager._global_limits_last_update_time = 0.0


def _table(bundle: Any, window: Window) -> pa.Table:
    """Ray Data keeps blocks apart and in order only as long as it is told to in the right words: trust, but count."""
    tables = [] if bundle is None else [ray.get(entry.ref) for entry in bundle.blocks]
    if [table.num_rows for table in tables] != [window.rows]:
        raise RuntimeError(f"Ray Data gave blocks of {[t.num_rows for t in tables]} rows where {window} was due")
    return tables[0]


def _own_error(error: BaseException) -> BaseException:
    """Pliant's own error where a read task raised one; Ray wraps it, in a class that poses as the error's own too."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, PliantError) and not isinstance(inner, RayTaskError):
            return type(inner)(inner.code, inner.message, hint=inner.hint, location=inner.location)
        inner = getattr(inner, "cause", None) or inner.__cause__
    return error


def _be_quiet() -> None:
    """Keeps Ray Data's news of every execution off the console; its log file has them, and warnings still show."""
    for handler in logging.getLogger("ray.data").handlers:
        if isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler):
            handler.setLevel(logging.WARNING)
    for name, level in _SILENCED.items():
        logging.getLogger(name).setLevel(level)


class LaneDatasource(ray.data.Datasource):
    """One read task per window."""

    def __init__(
        self, manifest: Manifest, spec: ReadSpec, windows: list[Window], seed: int | None, window_bytes: int
    ) -> None:
        super().__init__()
        largest = max(window.rows for window in windows)
        self.tasks = [
            ray.data.ReadTask(
                partial(_read, spec, locate(manifest, window), window, seed),
                BlockMetadata(
                    num_rows=window.rows,
                    size_bytes=window_bytes * window.rows // largest,
                    input_files=None,
                    exec_stats=None,
                ),
            )
            for window in windows
        ]

    def estimate_inmemory_data_size(self) -> int | None:
        return None

    def get_read_tasks(self, parallelism: int, *_: Any, **__: Any) -> list[ray.data.ReadTask]:
        return self.tasks


def _read(spec: ReadSpec, pieces: tuple[ShardPiece, ...], window: Window, seed: int | None) -> list[pa.Table]:
    return [read_window(spec, pieces, None if seed is None else window_permutation(seed, window))]

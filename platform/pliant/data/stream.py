"""Reads windows through Ray Data: one read task per window, in the order in which a rank needs them.

The only file that touches Ray Data. What Ray Data is told, and why:

- a ``Datasource`` of our own, since its Parquet reader starts actors and gives row groups no order;
- as many blocks as tasks and no target block size, else it cuts and joins what a task returns;
- ``preserve_order``, else blocks come as they finish;
- fractional CPUs per task and limits per rank, else the ranks' executions starve each other or the workers;
- some hundreds of windows per execution: it puts every task into the object store before it starts the first.

Each rank has executions of its own, through ``Dataset.iterator()``; none of Ray Data's state has to survive.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Any

import pyarrow as pa
import ray.data
from ray.data.block import BlockMetadata
from ray.exceptions import RayTaskError
from ray.train import DataConfig

from pliant.data.manifest import Manifest
from pliant.data.memory import RayBudget
from pliant.data.order import Window, window_permutation
from pliant.data.reading import ReadSpec, ShardPiece, locate, read_window
from pliant.errors import PliantError

_FIRST_CHUNK = 64
"""Windows of the first execution, few so that it starts at once; each one after it has four times as many …"""
_LARGEST_CHUNK = 2048
"""… up to this many."""
_CLOSE_WITHIN_S = 10.0
_SILENCED = {
    "ray.data._internal.progress": logging.ERROR,  # "Progress bars disabled"
    "ray.data._internal.execution.streaming_executor_state": logging.CRITICAL,  # tracebacks that are raised as well
}


class RayReader:
    """Windows in the order of their schedule, read by Ray tasks. A window source for a LaneStream.

    Args:
        manifest: the dataset.
        spec: what to read.
        schedule: windows in order of need; may be endless.
        seed: of the order within windows; None keeps manifest order.
        budget: how far is read ahead.
        cpus: CPUs of one read task.
        window_bytes: of the largest window, decoded.
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
    ) -> None:
        self._manifest = manifest
        self._spec = spec
        self._schedule = schedule
        self._seed = seed
        self._window_bytes = window_bytes
        self._start = partial(_tables, budget=budget, cpus=cpus, window_bytes=window_bytes)
        self._chunk_size = _FIRST_CHUNK
        self._closed = False
        self._lock = threading.Lock()  # nothing starts once it is closed
        self._executions: deque[_Execution] = deque()
        self._start_next()

    def __next__(self) -> tuple[Window, pa.Table]:
        """The next window of the schedule.

        Raises:
            StopIteration: the schedule has ended.
            PliantError: the window could not be read; so does every further call.
            RuntimeError: the reader was closed, by this thread or another.
        """
        if self._executions and not self._executions[0].windows:
            self._executions.popleft().close()
        if not self._executions:
            raise StopIteration
        current = self._executions[0]
        table = current.take()
        window = current.windows.popleft()
        if len(self._executions) == 1 and len(current.windows) <= current.size // 2:
            self._start_next()  # in good time, so that its start is not waited for
        return window, table

    def release(self) -> None:
        """Nothing to do: Ray Data counts what waits, and a window's memory goes with its last reference."""

    def close(self) -> None:
        """Ends the executions and their tasks. May be called from another thread than the rest, and twice."""
        with self._lock:
            self._closed = True
        for execution in list(self._executions):
            execution.close()

    def _start_next(self) -> None:
        with self._lock:
            windows = [] if self._closed else list(islice(self._schedule, self._chunk_size))
            if windows:
                self._chunk_size = min(4 * self._chunk_size, _LARGEST_CHUNK)
                source = LaneDatasource(self._manifest, self._spec, windows, self._seed, self._window_bytes)
                self._executions.append(_Execution(partial(self._start, source), windows))


class _Execution:
    """One execution of Ray Data over some windows, driven by a thread that stays one table ahead."""

    def __init__(self, start: Callable[[], Any], windows: list[Window]) -> None:
        self.windows = deque(windows)
        self.size = len(windows)
        self._tables: SimpleQueue[pa.Table | BaseException] = SimpleQueue()
        self._room = threading.Semaphore()
        self._closed = False
        self._thread = threading.Thread(
            target=self._run, args=(start, list(windows)), name="pliant-ray-data", daemon=True
        )
        self._thread.start()

    def take(self) -> pa.Table:
        item = self._tables.get()
        if isinstance(item, BaseException):
            self._tables.put(item)  # for whoever asks again
            raise item
        self._room.release()
        return item

    def close(self) -> None:
        self._closed = True
        self._room.release()
        self._tables.put(RuntimeError("the reader is closed"))
        # Ray Data offers no way to interrupt a thread that waits for a block which no CPU is free to read.
        self._thread.join(_CLOSE_WITHIN_S)

    def _run(self, start: Callable[[], Any], windows: list[Window]) -> None:
        try:
            tables = iter(start())
            try:
                for window in windows:
                    self._room.acquire()
                    if self._closed:
                        break
                    self._tables.put(_checked(next(tables, None), window))
            finally:
                tables.close()  # shuts the execution down and cancels its tasks
        except BaseException as error:
            self._tables.put(_own_error(error))


def _tables(source: LaneDatasource, *, budget: RayBudget, cpus: float, window_bytes: int) -> Any:
    """An iterable of tables, one per read task in their order; nothing runs before it is iterated over."""
    _be_quiet()
    dataset = ray.data.read_datasource(source, override_num_blocks=len(source.tasks), num_cpus=cpus)
    context = dataset.context
    context.target_max_block_size = None
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.execution_options.preserve_order = True
    context.execution_options.resource_limits = ray.data.ExecutionResources.for_limits(
        cpu=budget.tasks * cpus,
        object_store_memory=budget.object_store_bytes(window_bytes),
    )
    return dataset.iterator().iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=1)


def _checked(table: pa.Table | None, window: Window) -> pa.Table:
    """Ray Data keeps blocks apart and in order only as long as it is told to in the right words: trust, but count."""
    if table is None or table.num_rows != window.rows:
        found = "no block" if table is None else f"a block of {table.num_rows} rows"
        raise RuntimeError(f"Ray Data gave {found} where {window} was due")
    return table


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


@dataclass(frozen=True)
class LaneDataset:
    """Stands for a dataset in ``TorchTrainer(datasets={"train": LaneDataset()})``.

    It holds nothing: where a rank begins to read is known only when it has restored its state, so that the stream
    is opened in the worker.
    """


@dataclass(frozen=True)
class LaneShard:
    """A rank's part of a dataset, as ``ray.train.get_dataset_shard`` returns it in the worker."""

    rank: int
    world_size: int

    def open(self, **options: Any) -> Any:
        """The rank's :class:`pliant.data.lanes.LaneStream`; ``options`` are those of ``open_stream`` but for these."""
        from pliant.data.lanes import open_stream

        return open_stream(rank=self.rank, world_size=self.world_size, reader="ray", **options)


class LaneDataConfig(DataConfig):
    """Hands every rank its lanes, where Ray Train would split blocks by arrival and drop what does not divide."""

    def __init__(self) -> None:
        # No dataset is split: no rank waits for the others to ask for its part.
        super().__init__(datasets_to_split=[])

    def configure(self, datasets: dict[str, Any], world_size: int, *_: Any, **__: Any) -> list[dict[str, LaneShard]]:
        """A shard per rank and dataset."""
        return [{name: LaneShard(rank, world_size) for name in datasets} for rank in range(world_size)]

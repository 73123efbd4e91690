"""Pliant's two readers against a raw pyarrow scan and the loaders that people use, on the same Parquet rows.

    python bench/data.py [--rounds 3] [--no-peers]

131,072 rows of 256 int32 tokens in 16 files of 8 row groups, written by Pliant with a checksum on every page. The
peers (`make bench-peers`) read them with `bench/_peer_*.py`: MosaicML Streaming from an MDS copy, litData from the same
Parquet and from copies of its own, plain Ray Data. Compared is the fastest of all their settings; without the peers the
bench fails. All sides run in turns, so that a machine whose speed drifts slows all; ratios are taken within a round,
and of the rounds' ratios the median.

- Rates are rows per second of whole epochs once the first batches have come, whose time stands apart: batches of 256
  rows as int32 tensors, one consumer, the readers with their default of two threads or four tasks over 8 lanes, windows
  of 8. The raw scan reads whole row groups in random order with two threads, each file opened once, no batches, no
  checksums, no order within row groups: what any reader must do at least.
- Bytes before the first batch: what is asked of the files until the last window that the batch needs has been read, in
  units of one window's column chunks for each owned lane. Footers, read anew with each row group, are counted apart.
- Memory: how far a fresh process that streams grows over what it had before it opened the stream, with all shared
  memory of the embedded Ray, against the bound that a run prints before it starts. The private memory of Ray's task
  processes is left out: nearly all of it is their imports, and Ray replaces them as it likes.
- Planning 200,000 row groups (epoch order, then first windows of 8 lanes), and a manifest of 10,000 files.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from _common import ROOT, Bar, report

from pliant.data import local, reading, stream
from pliant.data.collate import collate_numeric
from pliant.data.filesystem import dataset_filesystem
from pliant.data.lanes import LaneStream, open_stream
from pliant.data.manifest import Manifest, build_manifest
from pliant.data.memory import memory_bound
from pliant.data.order import EpochOrder, Window, window_permutation
from pliant.data.plan import batch_shares, window_schedule
from pliant.data.prepare import write_dataset
from pliant.data.settings import DataSettings
from pliant.train.protocols import Split

ROWS, TOKENS, ROWS_PER_GROUP, ROWS_PER_FILE = 131_072, 256, 1024, 8192
VOCABULARY = 50_257
BATCH, LANES, SEED = 256, 8, 7
WINDOW = 8
WARM_UP, EPOCHS = 4, 8  # Ray starts its task processes in the first ones; each takes a fraction of a second
WIDE = {"lanes": 16, "window": 8}  # for a bound of some hundred megabytes
PEERS = ROOT / os.environ.get("PEERS", ".venv-peers")
PEER_SCRIPTS = {"streaming": PEERS / "bin/python", "litdata": PEERS / "bin/python", "ray_data": Path(sys.executable)}

BARS = {
    "local reader, × raw scan": Bar(at_least=0.6),
    "Ray reader, × raw scan": Bar(at_least=0.25),
    "Ray reader, × fastest peer": Bar(at_least=1.0),
    "plan of 200,000 row groups, ms": Bar(at_most=50),
    "seek in it, ms": Bar(at_most=5),
}


class Between(Bar):
    """A bar with two sides."""

    def __str__(self) -> str:
        return f"{self.at_least:g} … {self.at_most:g}"


for reader in ("local", "Ray"):
    BARS[f"{reader} reader, memory, × bound"] = Between(at_most=1.0, at_least=0.5)
    for place in (5, 95):
        BARS[f"{reader} reader, windows a lane before batch at {place} %"] = Bar(at_most=1.0)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--no-peers", action="store_true", help="for work on the readers; the bench then fails")
    arguments.add_argument("--part", nargs="+", help=argparse.SUPPRESS)  # in a process of its own
    options = arguments.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part[0]](*options.part[1:])))
        return 0
    if not options.no_peers and not (PEERS / "bin/python").exists():
        raise SystemExit(
            f"{PEERS} is not there, and Pliant is compared with what it holds: run `make bench-peers` first"
        )
    with tempfile.TemporaryDirectory(prefix="pliant-bench-") as folder:
        data = _write(f"{folder}/data")
        figures: dict[str, float] = {}
        for name, reader in (("local", "local"), ("Ray", "ray")):
            for place in (5, 95):
                found = _part("bytes", data, reader, str(place), f"{folder}/reads-{reader}-{place}")
                figures[f"{name} reader, windows a lane before batch at {place} %"] = found["windows"]
                figures[f"{name} reader, the footers' bytes, in windows a lane, at {place} %"] = found["footers"]
            found = _part("memory", data, reader)
            figures[f"{name} reader, memory bound, MB"] = found["bound"] / 1e6
            figures[f"{name} reader, memory, × bound"] = found["peak"] / found["bound"]
        figures |= _planning(f"{folder}/small")
        figures |= _throughput(data, folder, options.rounds, () if options.no_peers else tuple(PEER_SCRIPTS))
    figures = {key: figures[key] for key in sorted(figures, key=lambda key: (key not in BARS, key))}
    figures.setdefault("Ray reader, × fastest peer", 0.0)
    return report("data", figures, BARS)


def _part(*words: str) -> Any:
    """What this script prints about one part, in a process of its own."""
    return _json_of([sys.executable, str(Path(__file__).resolve()), "--part", *words])


def _json_of(command: list[str], advice: str = "") -> Any:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}\n{advice}")
    return json.loads(lines[-1])


# ---------------------------------------------------------------- the rows


def _write(out: str) -> str:
    """Writes the dataset; returns its directory. Tokens are as unequal as those of a language, about u³."""

    def batches() -> Iterator[pa.RecordBatch]:
        random_of = np.random.default_rng(SEED)
        for _ in range(ROWS // ROWS_PER_GROUP):
            values = (VOCABULARY * random_of.random(ROWS_PER_GROUP * TOKENS) ** 3).astype(np.int32)
            tokens = pa.FixedSizeListArray.from_arrays(pa.array(values), TOKENS)
            yield pa.record_batch([tokens], schema=schema)

    schema = pa.schema([("tokens", pa.list_(pa.int32(), TOKENS))])
    split = Split("train", schema, batches(), row_group_rows=ROWS_PER_GROUP, rows_per_file=ROWS_PER_FILE)
    write_dataset([split], out)
    return f"{out}/train"


def _settings(path: str, reader: str, *, lanes: int = LANES, window: int = WINDOW) -> DataSettings:
    return DataSettings(path=path, reader=reader, lanes=lanes, window=window)


def _open(manifest: Manifest, data: DataSettings, position: int = 0) -> LaneStream:
    return open_stream(
        manifest=manifest, data=data, seed=SEED, lanes=data.lanes or LANES, rank=0, world_size=1, epoch=0,
        position=position, reader=data.reader,
    )  # fmt: skip


def _batches(stream: LaneStream, rows: int, lanes: int, position: int = 0) -> Iterator[Any]:
    """Tensors of (256, 256) for ever, as a run's only rank gets them."""
    epoch = 0
    while True:
        shares, epoch, position, _ = batch_shares(
            rows=rows, lanes=lanes, global_batch=BATCH, epoch=epoch, position=position, tail="carry"
        )
        yield collate_numeric(pa.concat_tables([stream.take(share) for lane in shares for share in lane]))["tokens"]


@contextmanager
def _ray() -> Iterator[None]:
    """A Ray of its own, joined to no other on this machine. The path of its sockets must stay short."""
    import ray

    folder = tempfile.mkdtemp(prefix="pliant-ray-")
    ray.init(
        address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR,
        _temp_dir=folder,
    )  # fmt: skip
    try:
        yield
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------- throughput


def _throughput(data: str, folder: str, rounds: int, peers: tuple[str, ...]) -> dict[str, float]:
    rates: dict[str, list[float]] = {}
    ratios: dict[str, list[float]] = {}
    for number in range(rounds):
        found = _part("rates", data, str(number))
        fastest = 0.0
        for peer in peers:
            command = [str(PEER_SCRIPTS[peer]), str(ROOT / f"bench/_peer_{peer}.py"), data, folder]
            variants = _json_of(command, "`make bench-peers` installs the peers")
            for variant, figures in variants.items():
                rates.setdefault(f"{peer}: {variant}, rows/s", []).append(figures["rows_per_s"])
                rates.setdefault(f"{peer}: {variant}, s to the first batch", []).append(figures["first_batch_s"])
                fastest = max(fastest, figures["rows_per_s"])
        for side, value in found.items():
            rates.setdefault(side, []).append(value)
        raw, ours = found["raw scan, rows/s"], {s: found[f"{s} reader, rows/s"] for s in ("local", "Ray")}
        for side, value in ours.items():
            ratios.setdefault(f"{side} reader, × raw scan", []).append(value / raw)
        if peers:
            ratios.setdefault("Ray reader, × fastest peer", []).append(ours["Ray"] / fastest)
        print(f"round {number + 1}: " + ", ".join(f"{k} {v[-1]:.2f}" for k, v in ratios.items()), flush=True)
    return {key: statistics.median(values) for key, values in {**rates, **ratios}.items()}


def _rates(data: str, number: str) -> dict[str, float]:
    """Rows per second of the raw scan and both readers, in turns in one process."""
    manifest = build_manifest(data)
    figures: dict[str, float] = {}
    with _ray():
        raw = [_raw_scan(data, int(number))]
        for name, reader in (("local", "local"), ("Ray", "ray")):
            start = time.perf_counter()
            with _open(manifest, _settings(data, reader)) as stream:
                batches = _batches(stream, manifest.rows, LANES)
                next(batches)
                figures[f"{name} reader, s to the first batch"] = time.perf_counter() - start
                for _ in range(WARM_UP * manifest.rows // BATCH):
                    next(batches)
                start = time.perf_counter()
                for _ in range(EPOCHS * manifest.rows // BATCH):
                    next(batches)
                figures[f"{name} reader, rows/s"] = EPOCHS * manifest.rows / (time.perf_counter() - start)
            raw.append(_raw_scan(data, int(number)))
    figures["raw scan, rows/s"] = statistics.median(raw)
    return figures


def _raw_scan(data: str, seed: int) -> float:
    """Rows per second of two threads that read row groups in random order into numpy, four at a time in memory."""
    paths = sorted(Path(data).glob("*.parquet"))
    groups = [(path, index) for path in paths for index in range(pq.ParquetFile(path).num_row_groups)] * EPOCHS
    random.Random(seed).shuffle(groups)
    opened = threading.local()

    def read(place: tuple[Path, int]) -> Any:
        files = opened.__dict__.setdefault("files", {})
        path, index = place
        if path not in files:
            files[path] = pq.ParquetFile(path, pre_buffer=True)
        table = files[path].read_row_group(index, use_threads=False)
        return table["tokens"].combine_chunks().flatten().to_numpy().reshape(-1, TOKENS)

    with ThreadPoolExecutor(2) as pool:
        waiting: deque[Future[Any]] = deque()
        rows, start = 0, 0.0
        for place in groups:
            waiting.append(pool.submit(read, place))
            if len(waiting) == 4:
                taken = len(waiting.popleft().result())
                rows, start = (rows + taken, start) if start else (0, time.perf_counter())
        rows += sum(len(future.result()) for future in waiting)
        return rows / (time.perf_counter() - start)


# ---------------------------------------------------------------- bytes before the first batch


def _bytes(data: str, reader: str, place: str, log: str) -> dict[str, float]:
    """Bytes asked for until the last window of the first batch has been read, over those of its windows' chunks."""
    manifest, settings = build_manifest(data), _settings(data, reader)
    position = manifest.rows * int(place) // 100
    local.read_window = partial(_counted_read_window, log)
    stream._read = partial(_counted_task, log)
    if reader == "local":
        _first_batch(manifest, settings, position)
    else:
        with _ray():
            _first_batch(manifest, settings, position)
    # Neither place lies so near a window's end that a lane's 32 rows of the batch go beyond it.
    needed = list(islice(_schedule(manifest.group_rows, LANES, WINDOW, position), LANES))
    events = [json.loads(line) for line in Path(log).read_text().splitlines()]
    done = {tuple(event["window"]): event["at"] for event in events if "window" in event}
    ready = max(done[_groups(window.pieces)] for window in needed)
    reads = [event for event in events if "bytes" in event and event["at"] <= ready]
    footers = [event for event in reads if event["offset"] + event["bytes"] == os.path.getsize(event["path"])]
    unit = sum(_chunk_bytes(manifest, group) for window in needed for group in _groups(window.pieces))
    total, beside = (sum(event["bytes"] for event in events) for events in (reads, footers))
    return {"windows": (total - beside) / unit, "footers": beside / unit}


def _first_batch(manifest: Manifest, settings: DataSettings, position: int) -> None:
    with _open(manifest, settings, position) as rows:
        next(_batches(rows, manifest.rows, LANES, position))


def _groups(pieces: Iterable[Any]) -> tuple[int, ...]:
    return tuple(piece.row_group for piece in pieces)


def _chunk_bytes(manifest: Manifest, group: int) -> int:
    path = f"{manifest.root}/{manifest.files[int(manifest.group_file[group])].path}"
    return pq.read_metadata(path).row_group(int(manifest.group_index[group])).column(0).total_compressed_size


def _counted_task(log: str, spec: Any, pieces: Any, window: Window, seed: int | None) -> list[pa.Table]:
    """Stands for the Ray reader's ``_read``; Ray takes it along by value."""
    return [_counted_read_window(log, spec, pieces, None if seed is None else window_permutation(seed, window))]


def _counted_read_window(log: str, spec: Any, pieces: Any, permutation: Any, **options: Any) -> pa.Table:
    """Reads a window through files that write down what is asked of them, then that it has been read."""
    reading.dataset_filesystem = lambda uri: (_Counted(log), dataset_filesystem(uri)[1])
    table = reading.read_window(spec, pieces, permutation, **options)
    _note(log, window=_groups(pieces))
    return table


class _Counted:
    """A filesystem of which ``read_window`` needs one method."""

    def __init__(self, log: str) -> None:
        self._log = log

    def open_input_file(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(_CountedFile(path, self._log), mode="r")


class _CountedFile(io.FileIO):
    def __init__(self, path: str, log: str) -> None:
        super().__init__(path)
        self._log = log

    def read(self, size: int | None = -1) -> bytes:
        offset = self.tell()
        data = super().read(-1 if size is None else size) or b""
        _note(self._log, path=str(self.name), offset=offset, bytes=len(data))
        return data


def _note(log: str, **what: Any) -> None:
    """Adds a line with the time, which all processes of a machine share."""
    with open(log, "a") as file:
        file.write(json.dumps({"at": time.monotonic(), **what}) + "\n")


# ---------------------------------------------------------------- memory


def _memory(data: str, reader: str) -> dict[str, float]:
    """Growth of a rank that takes two epochs slowly, so that everything it may read ahead is there."""
    manifest, settings = build_manifest(data), _settings(data, reader, **WIDE)
    bound = memory_bound(
        manifest=manifest, data=settings, lanes=WIDE["lanes"], world_size=1, global_batch=BATCH
    )  # fmt: skip
    if reader == "local":
        return {"bound": bound, "peak": _growth(manifest, settings)}
    with _ray():
        return {"bound": bound, "peak": _growth(manifest, settings)}


def _growth(manifest: Manifest, settings: DataSettings) -> float:
    before = _resident()
    peak, done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.02):
            peak = max(peak, _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    _take(manifest, settings, 2 * manifest.rows)
    done.set()
    watcher.join()
    return peak - before


def _take(manifest: Manifest, settings: DataSettings, rows: int) -> None:
    with _open(manifest, settings) as stream:
        for _ in islice(_batches(stream, manifest.rows, settings.lanes or LANES), rows // BATCH):
            time.sleep(0.004)


def _resident() -> int:
    """Resident bytes of this process without shared memory, and all shared memory of it and its children."""
    total = _kilobytes("/proc/self/status", "RssAnon", "RssFile")
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.Error, OSError):
            # The proportional size: what several of them map is counted once.
            total += _kilobytes(f"/proc/{process.pid}/smaps_rollup", "Pss_Shmem")
    return total * 1024


def _kilobytes(path: str, *keys: str) -> int:
    lines = Path(path).read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(tuple(f"{key}:" for key in keys)))


# ---------------------------------------------------------------- planning


def _planning(folder: str) -> dict[str, float]:
    group_rows = np.random.default_rng(SEED).integers(500, 1500, 200_000)
    rows = int(group_rows.sum())
    builds, seeks = [], []
    for number in range(15):
        start = time.perf_counter()
        order = EpochOrder(group_rows, seed=SEED, epoch=number, lanes=LANES, window=WINDOW)
        built = time.perf_counter()
        schedule = window_schedule(lambda epoch, order=order: order, range(LANES), number, rows * number // 15)
        first = list(islice(schedule, LANES))
        seeks.append(time.perf_counter() - built)
        builds.append(built - start)
        if len({window.lane for window in first}) != LANES:
            raise SystemExit("the first windows are not one of each lane")
    _small_files(folder, 10_000)
    start = time.perf_counter()
    manifest = build_manifest(folder)
    seconds = time.perf_counter() - start
    if len(manifest.files) != 10_000:
        raise SystemExit(f"{len(manifest.files)} files are in the manifest of 10,000")
    return {
        "plan of 200,000 row groups, ms": statistics.median(builds) * 1e3,
        "seek in it, ms": statistics.median(seeks) * 1e3,
        "manifest of 10,000 files, s": seconds,
    }


def _small_files(folder: str, count: int) -> None:
    """One file under many names: each is listed and its footer read like any other."""
    Path(folder).mkdir()
    table = pa.table({"tokens": pa.array(range(10), pa.int32())})
    pq.write_table(table, f"{folder}/00000.parquet")
    for number in range(1, count):
        os.link(f"{folder}/00000.parquet", f"{folder}/{number:05d}.parquet")


def _schedule(group_rows: Any, lanes: int, window: int, position: int) -> Iterator[Window]:
    def order(epoch: int) -> EpochOrder:
        return EpochOrder(group_rows, seed=SEED, epoch=epoch, lanes=lanes, window=window)

    return window_schedule(order, range(lanes), 0, position)


PARTS = {"rates": _rates, "bytes": _bytes, "memory": _memory}


if __name__ == "__main__":
    sys.exit(main())

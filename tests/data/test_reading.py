"""Reading one window: what is retried, what is refused, and what comes out."""

from __future__ import annotations

import pickle
import re
from decimal import Decimal
from threading import Event

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from pliant.data import reading
from pliant.data.faults import classify
from pliant.data.manifest import Manifest, build_manifest
from pliant.data.order import Piece, Window
from pliant.data.reading import locate, read_spec, read_window
from pliant.data.reorder import reordered
from pliant.data.settings import DataSettings, ReadSettings
from pliant.errors import ConfigError, DamageError, StorageError
from tests.data.shardkit import flip_data_byte
from tests.data.streams import write_groups

QUICK = ReadSettings(backoff=0.001, retries=3)


def read_all(manifest: Manifest, *, columns=None, row_ids=False, cancelled=None, **data) -> pa.Table:
    """Every row of a dataset in manifest order, as one window."""
    spec = read_spec(manifest, DataSettings(path="x", read=QUICK, **data), columns=columns, row_ids=row_ids)
    pieces = tuple(Piece(group, 0, rows) for group, rows in enumerate(manifest.group_rows.tolist()))
    window = Window(epoch=0, lane=0, index=0, start=0, stop=manifest.rows, pieces=pieces)
    table = read_window(spec, locate(manifest, window), None, cancelled=cancelled)
    assert table.schema == spec.table_schema
    return table


def dataset(root, table: pa.Table, **options) -> Manifest:
    root.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, root / "part-0.parquet", **options)
    return build_manifest(str(root))


class Faulty(fs.FileSystemHandler):
    """A local filesystem whose first reads fail, with the errors given."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.opened = 0
        self._local = fs.LocalFileSystem()

    def open_input_file(self, path: str) -> pa.NativeFile:
        self.opened += 1
        if self.errors:
            raise self.errors.pop(0)
        return self._local.open_input_file(path)

    def _unused(self, *_: object) -> None:
        raise NotImplementedError

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _unused
    get_file_info = get_file_info_selector = move = open_append_stream = open_input_stream = _unused
    open_output_stream = get_type_name = normalize_path = _unused


@pytest.fixture
def faulty(monkeypatch):
    """Makes reading go through a filesystem that fails first."""

    def install(*errors: BaseException) -> Faulty:
        handler = Faulty(*errors)
        handler.get_type_name = lambda: "faulty"
        handler.normalize_path = lambda path: path
        filesystem = fs.PyFileSystem(handler)
        monkeypatch.setattr(reading, "dataset_filesystem", lambda uri: (filesystem, uri))
        return handler

    return install


PASSING = [
    OSError("When reading information for key 'x': AWS Error SLOW_DOWN during HeadObject operation: Please reduce"),
    OSError("AWS Error UNKNOWN (HTTP status 503) during GetObject operation"),
    OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7, Couldn't connect to server"),
    OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted)"),
    OSError("Too Many Requests"),
    TimeoutError(),
    ConnectionResetError(104, "Connection reset by peer"),
    OSError(5, "Input/output error"),
]


class HttpError(Exception):
    """Like gcsfs's and aiohttp's: the answer's status is an attribute."""

    def __init__(self, status: int) -> None:
        super().__init__("the service says no")
        self.status = status


@pytest.mark.parametrize("error", [*PASSING, HttpError(429), HttpError(503)], ids=lambda e: f"{type(e).__name__} {e}")
def test_passing_faults_are_retried(tmp_path, faulty, error, caplog):
    manifest = write_groups(tmp_path, [[5]])
    handler = faulty(error, error)
    assert read_all(manifest).column("id").to_pylist() == [0, 1, 2, 3, 4]
    assert handler.opened == 3
    assert "reading again in" in caplog.text
    assert "part-00000.parquet, row group 0" in caplog.text


def test_faults_that_do_not_pass_name_shard_row_group_and_settings(tmp_path, faulty):
    manifest = write_groups(tmp_path, [[5]])
    handler = faulty(*[TimeoutError("no answer")] * 9)
    with pytest.raises(StorageError, match=r"part-00000\.parquet, row group 0.*4 attempts.*no answer") as found:
        read_all(manifest)
    assert "data.read.retries" in found.value.hint
    assert handler.opened == 4


def test_retrying_ends_when_cancelled(tmp_path, faulty):
    manifest = write_groups(tmp_path, [[5]])
    handler = faulty(*[TimeoutError()] * 9)
    cancelled = Event()
    cancelled.set()
    with pytest.raises(StorageError):
        read_all(manifest, cancelled=cancelled)
    assert handler.opened == 1


@pytest.mark.parametrize("error", [PermissionError(13, "no"), OSError("AWS Error ACCESS_DENIED"), HttpError(403)])
def test_refused_reads_are_not_retried(tmp_path, faulty, error):
    manifest = write_groups(tmp_path, [[5]])
    handler = faulty(error)
    with pytest.raises(StorageError, match="may not be read"):
        read_all(manifest)
    assert handler.opened == 1


def test_errors_of_other_kinds_pass_through(tmp_path, faulty):
    manifest = write_groups(tmp_path, [[5]])
    for error in (pa.ArrowMemoryError("malloc of size 9 failed"), KeyError("bug")):
        faulty(error)
        with pytest.raises(type(error)):
            read_all(manifest)


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_a_flipped_byte_is_damage_and_not_retried(tmp_path, faulty, compression):
    manifest = write_groups(tmp_path, [[50, 50], [50]], compression=compression, use_dictionary=False)
    flip_data_byte(tmp_path / "part-00000.parquet", row_group=1)
    handler = faulty()
    with pytest.raises(DamageError, match=r"part-00000\.parquet, row group 1.*CRC") as found:
        read_all(manifest)
    assert found.value.code == "data.damaged-shard"
    assert handler.opened == 3  # the good row group, the bad one once, and a look whether its bytes come at all


def test_unknown_faults_are_storages_as_long_as_the_bytes_do_not_come(tmp_path, faulty):
    manifest = write_groups(tmp_path, [[5]])
    faulty(OSError("the tape robot is on strike"), OSError("still"), OSError("words"), OSError("unheard of"))
    assert read_all(manifest).num_rows == 5


def test_shards_that_are_gone_or_changed_are_damage(tmp_path):
    manifest = write_groups(tmp_path, [[5], [6]])
    path = tmp_path / "part-00001.parquet"
    path.write_bytes(path.read_bytes() + b"x")
    with pytest.raises(DamageError, match=r"part-00001\.parquet, row group 0.*bytes, the manifest says"):
        read_all(manifest)
    path.unlink()
    with pytest.raises(DamageError, match="no longer there") as found:
        read_all(manifest)
    assert found.value.code == "data.missing-shard"


def test_a_shard_of_equal_size_with_other_contents_is_damage(tmp_path):
    plain = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    manifest = dataset(tmp_path, pa.table({"a": pa.array(range(8), pa.int64())}), **plain)
    size = (tmp_path / "part-0.parquet").stat().st_size
    dataset(tmp_path, pa.table({"b": pa.array(range(8), pa.int64())}), **plain)
    assert (tmp_path / "part-0.parquet").stat().st_size == size
    with pytest.raises(DamageError, match="lacks the columns a"):
        read_all(manifest)


def test_damage_errors_survive_pickling(tmp_path):
    manifest = write_groups(tmp_path, [[50]])
    flip_data_byte(tmp_path / "part-00000.parquet", row_group=0)
    with pytest.raises(DamageError) as found:
        read_all(manifest)
    copy = pickle.loads(pickle.dumps(found.value))
    assert (type(copy), copy.location) == (DamageError, found.value.location)


@pytest.mark.parametrize(
    ("error", "path", "fault"),
    [
        (OSError("Unexpected end of stream: Page was smaller (503) than expected (429)"), "p", "damage"),
        (OSError("Corrupt snappy compressed data: /d/timeout-503/p"), "/d/timeout-503/p", "damage"),
        (pa.ArrowInvalid("Parquet magic bytes not found in footer"), "p", "damage"),
        (OSError("AWS Error NO_SUCH_KEY during GetObject operation"), "p", "missing"),
        (HttpError(404), "p", "missing"),
        (ValueError("a bug"), "p", "other"),
    ],
)
def test_faults_are_told_apart(error, path, fault):
    assert classify(error, path) == fault


def test_columns_are_read_in_the_order_asked_for(tmp_path):
    manifest = write_groups(tmp_path, [[3], [2]])
    assert read_all(manifest, columns=["tokens"]).column_names == ["tokens"]
    table = read_all(manifest, columns=["tokens", "id"], row_ids=True)
    assert table.column_names == ["tokens", "id", "__row_group__", "__row__"]
    assert table.column("__row_group__").to_pylist() == [0, 0, 0, 1, 1]
    assert table.column("__row__").to_pylist() == [0, 1, 2, 0, 1]
    with pytest.raises(ConfigError, match=r"(?s)no column 'token'.*did you mean 'tokens'") as found:
        read_all(manifest, columns=["token"])
    assert found.value.code == "data.column"


def test_partition_columns_come_from_the_path(tmp_path):
    for year, city, rows in ((2023, "Bern", 2), (2024, "__HIVE_DEFAULT_PARTITION__", 3)):
        directory = tmp_path / f"year={year}" / f"city={city}"
        directory.mkdir(parents=True)
        pq.write_table(pa.table({"a": range(rows)}), directory / "x.parquet")
    manifest = build_manifest(str(tmp_path))
    table = read_all(manifest)
    assert table.column("year").to_pylist() == [2023] * 2 + [2024] * 3
    assert table.column("city").to_pylist() == ["Bern"] * 2 + [None] * 3
    assert read_all(manifest, columns=["year"]).num_rows == 5


def test_types_are_those_of_the_manifest(tmp_path):
    text = pa.array(["a", "b", "a"])
    for number, column in enumerate((text, text.cast(pa.large_string()), text.dictionary_encode())):
        pq.write_table(pa.table({"s": column}), tmp_path / f"{number}.parquet")
    assert read_all(build_manifest(str(tmp_path))).column("s").to_pylist() == ["a", "b", "a"] * 3


NULLS = pa.table(
    {
        "i": pa.array([1, None, 3], pa.int32()),
        "f": pa.array([None, 0.5, 1.5], pa.float32()),
        "s": pa.array(["a", None, "c"]),
        "l": pa.array([[1, 2], [3, None], [5, 6]], pa.list_(pa.int32(), 2)),
    }
)


@pytest.mark.parametrize("column", ["i", "f", "l"])
def test_nulls_in_numbers_need_a_policy(tmp_path, column):
    manifest = dataset(tmp_path, NULLS)
    with pytest.raises(ConfigError, match=rf"row group 0.*column '{column}'.*has nulls \(1 of") as found:
        read_all(manifest, columns=[column])
    assert f"data.nulls.{column}" in found.value.hint


def test_nulls_of_all_columns_are_in_one_error(tmp_path):
    with pytest.raises(ConfigError, match="3 columns have nulls") as found:
        read_all(dataset(tmp_path, NULLS))
    lines = found.value.message.splitlines()[1:]
    assert [line.strip().split(" has ")[0] for line in lines] == [
        "column 'i' (int32)", "column 'f' (float)", "column 'l' (fixed_size_list<item: int32>[2])",
    ]  # fmt: skip
    assert "data.nulls.i to mask" in found.value.hint


def test_null_policies_mask_and_fill_and_leave_text_alone(tmp_path):
    manifest = dataset(tmp_path, NULLS)
    table = read_all(manifest, columns=["i", "f", "s"], nulls={"i": "mask", "f": 7.0})
    assert table.to_pydict() == {
        "i": [1, 0, 3], "f": [7.0, 0.5, 1.5], "s": ["a", None, "c"], "i__valid": [True, False, True],
    }  # fmt: skip
    assert read_all(manifest, columns=["s"], nulls={"s": "?"}).column("s").to_pylist() == ["a", "?", "c"]
    assert read_all(manifest, columns=["s"], nulls={"s": "mask"}).to_pydict() == {
        "s": ["a", "", "c"], "s__valid": [True, False, True],
    }  # fmt: skip
    with pytest.raises(ConfigError, match="'s'"):
        read_all(manifest, columns=["s"], nulls={"s": "error"})


@pytest.mark.parametrize(
    "kind",
    [
        pa.decimal32(1), pa.decimal32(9, 9), pa.decimal64(18, 4), pa.decimal128(10, 2), pa.decimal128(38, 38),
        pa.decimal256(2, 1), pa.decimal256(76, 76),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("policy", ["mask", 0.0])
def test_decimals_of_every_width_are_masked_and_filled(tmp_path, kind, policy):
    one = Decimal(1).scaleb(-kind.scale)
    manifest = dataset(tmp_path, pa.table({"d": pa.array([one, None], kind)}))
    table = read_all(manifest, nulls={"d": policy})
    assert table.schema.field("d").type == kind
    assert table["d"].to_pylist() == [one, 0]
    assert table.column_names == (["d", "d__valid"] if policy == "mask" else ["d"])


def test_a_mask_is_there_without_nulls_too(tmp_path):
    manifest = dataset(tmp_path, pa.table({"i": [1, 2]}))
    assert read_all(manifest, nulls={"i": "mask"}).column("i__valid").to_pylist() == [True, True]


@pytest.mark.parametrize(
    ("nulls", "message"),
    [
        ({"x": 1.0}, "'x', which is not among the columns"),
        ({"i": 0.5}, "0.5 does not fit a column of type int32"),
        ({"i": "zero"}, "'zero' does not fit"),
        ({"l": "mask"}, "can only be refused"),
    ],
)
def test_policies_that_cannot_be_carried_out_are_refused(tmp_path, nulls, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        read_all(dataset(tmp_path, NULLS), nulls=nulls)


COLUMNS = {
    "int": pa.array(range(60), pa.int16()),
    "float": pa.array(np.arange(60) / 7),
    "bool": pa.array([i % 3 == 0 for i in range(60)]),
    "nullable": pa.array([None if i % 5 == 0 else i for i in range(60)]),
    "text": pa.array([f"row {i}" for i in range(60)]),
    "even lists": pa.array([[i, i + 1] for i in range(60)], pa.list_(pa.int32())),
    "ragged lists": pa.array([[i] * (i % 4) for i in range(60)], pa.list_(pa.int32())),
    "lists even in one chunk": pa.array([[i] * (1 + i // 30) for i in range(60)], pa.list_(pa.int32())),
    "empty lists": pa.array([[]] * 60, pa.list_(pa.int32())),
    "null lists": pa.array([None if i == 3 else [i] for i in range(60)], pa.list_(pa.int32())),
    "lists with nulls": pa.array([[i, None] for i in range(60)], pa.list_(pa.int32())),
    "fixed lists": pa.array([[i, -i, i] for i in range(60)], pa.list_(pa.float32(), 3)),
    "lists of lists": pa.array([[[i], [i, i]] for i in range(60)], pa.list_(pa.list_(pa.int8()), 2)),
    "times": pa.array(range(60), pa.timestamp("us")),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_of_any_type_are_reordered(name):
    whole = pa.table({"c": COLUMNS[name]})
    # Chunks as slices, so that offsets into buffers are not all 0.
    chunked = pa.concat_tables([whole.slice(0, 30), whole.slice(30, 1), whole.slice(31, 29)])
    permutation = np.random.default_rng(1).permutation(60)
    found = reordered(chunked, permutation)
    assert found.schema == whole.schema
    assert found.column("c").num_chunks == 1
    found.validate(full=True)
    values = whole.column("c").to_pylist()
    assert found.column("c").to_pylist() == [values[i] for i in permutation]

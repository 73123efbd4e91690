"""Datasets in object storage, end to end on a real S3 server, and what happens while it is away."""

from __future__ import annotations

import logging
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from pliant.data.filesystem import dataset_filesystem
from pliant.data.inspect import inspect_dataset
from pliant.data.manifest import load_or_build_manifest
from pliant.data.patience import patiently
from pliant.data.plan import Share
from pliant.data.prepare import write_dataset
from pliant.data.repack import repack
from pliant.data.settings import ReadSettings
from pliant.data.verify import verify_dataset
from pliant.errors import ConfigError, DamageError, StorageError
from pliant.train.protocols import Split
from tests.data.shardkit import table
from tests.data.streams import open_at, settings
from tests.s3 import S3Server

QUICK = ReadSettings(retries=3, backoff=1e-3)


def splits() -> list[Split]:
    schema = table(1).schema
    return [Split(name, schema, iter(table(400).to_batches()), 25, 100) for name in ("train", "validation")]


def test_prepare_verify_inspect_and_repack(s3_server: S3Server) -> None:
    uri = s3_server.uri(uuid.uuid4().hex)
    written = write_dataset(splits(), f"{uri}/in")
    verified = verify_dataset(f"{uri}/in")
    assert {name: v.digest for name, v in verified.items()} == {name: m.digest for name, m in written.items()}
    assert inspect_dataset(f"{uri}/in")["train"].rows == 400
    repacked = repack(f"{uri}/in", f"{uri}/out", row_group_rows=16)
    assert verify_dataset(f"{uri}/out")["validation"].rows == repacked["validation"].rows == 400
    filesystem, root = dataset_filesystem(f"{uri}/in/train")
    with filesystem.open_input_file(f"{root}/part-00001.parquet") as file:
        data = bytearray(file.read())
    data[60] ^= 1
    with filesystem.open_output_stream(f"{root}/part-00001.parquet") as sink:
        sink.write(data)
    with pytest.raises(DamageError, match=r"train/part-00001\.parquet: row group 0"):
        verify_dataset(f"{uri}/in")


@pytest.mark.ray
def test_both_readers_give_the_same_rows(ray_cluster: None, s3_server: S3Server) -> None:
    manifest = write_dataset(splits(), s3_server.uri(uuid.uuid4().hex))["train"]
    shares = [Share(epoch, lane, *span) for epoch in range(2) for span in ((0, 1), (1, 200)) for lane in range(2)]
    tables = []
    for reader in ("local", "ray"):
        with open_at(manifest, settings(manifest), lanes=2, reader=reader, row_ids=True, limit_epochs=2) as stream:
            tables.append([stream.take(share) for share in shares])
    assert tables[0] == tables[1]
    for epoch in (tables[1][:4], tables[1][4:]):
        assert sorted(pa.concat_tables(epoch)["id"].to_pylist()) == list(range(400))


def test_a_missing_dataset(s3_server: S3Server) -> None:
    with pytest.raises(ConfigError):
        load_or_build_manifest(s3_server.uri("nothing-here"))


@pytest.mark.slow
def test_an_outage_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            waits.set()

    logger, listener = logging.getLogger("pliant.data"), Listener()
    with S3Server() as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        written = write_dataset(splits(), server.uri("d"))
        server.kill()
        logger.addHandler(listener)
        try:
            with ThreadPoolExecutor(1) as pool:
                manifest = pool.submit(load_or_build_manifest, server.uri("d/train"))
                assert waits.wait(60)
                server.restart()
                assert manifest.result(60) == written["train"]
        finally:
            logger.removeHandler(listener)


def test_a_passing_fault_is_tried_again() -> None:
    answers: list[Exception] = [OSError("When reading: AWS Error SLOW_DOWN"), TimeoutError()]

    def call() -> str:
        if answers:
            raise answers.pop()
        return "rows"

    assert patiently(call, "bucket/x", "s3://bucket/x", QUICK) == "rows"


@pytest.mark.parametrize(
    ("error", "calls"), [(ConnectionResetError(), 4), (PermissionError(), 1), (OSError("AWS Error ACCESS_DENIED"), 1)]
)
def test_faults_that_stay_are_storage_errors(error: Exception, calls: int) -> None:
    seen = []

    def call() -> None:
        seen.append(1)
        raise error

    with pytest.raises(StorageError, match="s3://bucket/x"):
        patiently(call, "bucket/x", "s3://bucket/x", QUICK)
    assert len(seen) == calls


@pytest.mark.parametrize(
    "error", [FileNotFoundError(), pa.ArrowInvalid("bad"), DamageError("a.b", "timeout"), ValueError()]
)
def test_what_is_no_fault_of_storage_passes_through(error: Exception) -> None:
    def call() -> None:
        raise error

    with pytest.raises(type(error)):
        patiently(call, "bucket/timeout", "s3://bucket/timeout", QUICK)

"""Storage that fails: passing faults are waited for, the others are said at once, and nothing is lost or doubled."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pliant.errors import StorageError
from pliant.storage.faults import PassingFault, from_object_error, from_os_error
from pliant.storage.layout import CheckpointRef
from pliant.storage.logs import read_log
from pliant.storage.record import RunRecord
from pliant.storage.segments import LogWriter
from pliant.storage.settings import StorageSettings
from pliant.storage.store import Store
from tests.s3 import S3Server
from tests.s3_proxy import FaultyProxy
from tests.storage.conftest import QUICK

Waits = tuple[list[str], Callable[[str, float], None]]
BIG = os.urandom(2**20) * 40


@pytest.fixture
def proxy(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    with FaultyProxy(s3_server.endpoint) as faulty:
        monkeypatch.setenv("AWS_ENDPOINT_URL", faulty.endpoint)
        yield faulty


@pytest.fixture
def far(proxy: FaultyProxy, s3_server: S3Server, waits: Waits) -> Store:
    """A store behind the proxy."""
    return Store(s3_server.uri(f"t-{uuid.uuid4().hex}"), QUICK, on_wait=waits[1])


@pytest.mark.parametrize("mode", ["503", "429", "500", "reset", "lost"])
def test_every_call_gets_over_passing_faults(proxy: FaultyProxy, far: Store, waits: Waits, mode: str) -> None:
    calls = [
        lambda: far.put("a", b"1"),
        lambda: far.put_if_absent("b", b"2"),
        lambda: far.get("a"),
        lambda: far.get_range("a", 0, 1),
        lambda: far.head("a"),
        lambda: far.list(),
        lambda: far.folders(),
        lambda: far.delete("a"),
    ]
    for n, call in enumerate(calls, 1):
        proxy.misbehave(mode, 3)
        call()
        assert proxy.met[mode] == 3 * n
    assert len(waits[0]) == 3 * len(calls)
    assert [o.key for o in far.list()] == ["b"]
    if mode == "503":
        assert "503" in waits[0][0]


def test_waiting_that_nobody_is_told_of_is_a_warning(
    proxy: FaultyProxy, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pliant.storage.store._WARN_AFTER_S", 0.0)
    monkeypatch.setattr("pliant.storage.store._warned_at", float("-inf"))
    store = Store(s3_server.uri(f"t-{uuid.uuid4().hex}"), QUICK)
    proxy.misbehave("503", 3)
    store.put("a", b"1")
    (record,) = caplog.records
    assert record.getMessage().startswith("waiting for storage since 0 s: ")
    assert "503" in record.getMessage()


@pytest.mark.parametrize("mode", ["503", "reset", "lost"])
@pytest.mark.parametrize("size", [100, len(BIG)])
def test_writers_and_readers_get_over_passing_faults(proxy: FaultyProxy, far: Store, mode: str, size: int) -> None:
    proxy.misbehave(mode, 2, "PUT")
    with far.open_writer("x") as file:
        file.write(BIG[:size])
    assert proxy.met[mode] == 2
    proxy.misbehave(mode, 2, "GET")
    with far.open_reader("x") as reader:
        same = reader.read() == BIG[:size]
    assert same


def test_create_whose_answer_was_lost_is_ours(proxy: FaultyProxy, far: Store) -> None:
    proxy.misbehave("lost", 1, "PUT")
    assert far.put_if_absent("claim", b"mine")
    proxy.misbehave("lost", 2, "PUT")
    assert not far.put_if_absent("claim", b"other"), "it was there before"
    assert far.get("claim") == b"mine"


def test_racers_behind_lost_answers_still_have_one_winner(proxy: FaultyProxy, far: Store) -> None:
    from concurrent.futures import ThreadPoolExecutor

    for round_ in range(5):
        proxy.misbehave("lost", 6, "PUT")
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda i, r=round_: far.put_if_absent(f"r{r}", f"racer {i}".encode()), range(8)))
        assert won.count(True) == 1
        assert far.get(f"r{round_}") == f"racer {won.index(True)}".encode()


def test_attempt_numbers_have_no_gaps_behind_lost_answers(proxy: FaultyProxy, far: Store) -> None:
    record = RunRecord.create(far, {})
    proxy.misbehave("lost", 3, "PUT")
    assert [record.claim_driver().number for _ in range(4)] == [1, 2, 3, 4]
    assert len(record.attempts()) == 4


def test_waiting_ends_with_an_error_that_says_why(s3_server: S3Server, proxy: FaultyProxy) -> None:
    store = Store(s3_server.uri("x"), StorageSettings(retry_for=0.5, request_timeout=5))
    proxy.misbehave("503", 10_000)
    start = time.monotonic()
    with pytest.raises(StorageError, match=r"did not answer usefully.*503 Service Unavailable") as error:
        store.get("a")
    assert error.value.code == "storage.unavailable"
    assert 0.3 < time.monotonic() - start < 10
    with pytest.raises(StorageError), store.open_writer("b") as file:
        file.write(b"1")


def test_wrong_credentials_and_read_only_credentials_fail_at_once(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = time.monotonic()
    for key, secret in (("test-access", "wrong"), ("reader-access", "reader-secret")):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
        with pytest.raises(StorageError, match="credentials") as error:
            Store(s3_server.uri("x"), QUICK).put("a", b"1")
        assert error.value.code == "storage.denied"
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "storage.full"),
        (errno.EDQUOT, "storage.full"),
        (errno.EROFS, "storage.read-only"),
        (errno.EACCES, "storage.denied"),
        (errno.ENAMETOOLONG, "storage.refused"),
    ],
)
def test_local_faults_that_do_not_pass_fail_at_once(
    local_store: Store, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    local_store.put("kept", b"1")
    monkeypatch.setattr(os, "fsync", fail)
    for call in (lambda: local_store.put("a", b"1"), lambda: local_store.put_if_absent("a", b"1")):
        with pytest.raises(StorageError) as error:
            call()
        assert error.value.code == code
        assert error.value.hint
    with pytest.raises(StorageError), local_store.open_writer("a") as file:
        file.write(b"1")
    monkeypatch.undo()
    assert [o.key for o in local_store.list()] == ["kept"]
    assert [p.name for p in Path(local_store.local_path()).iterdir()] == ["kept"], "nothing staged is left"


def test_local_faults_that_pass_are_waited_for(tmp_path: Path, waits: Waits, monkeypatch: pytest.MonkeyPatch) -> None:
    left, real = [2], os.fsync

    def stale(handle: int) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ESTALE, "Stale file handle")
        real(handle)

    monkeypatch.setattr(os, "fsync", stale)
    store = Store(str(tmp_path), QUICK, on_wait=waits[1])
    assert store.put_if_absent("a", b"1")
    assert waits[0] == ["Stale file handle"] * 2


def test_classification_of_what_no_server_here_answers() -> None:
    def outcome(text: str) -> str:
        fault = from_object_error(Exception(text), "s3://b/k")
        return fault.code if isinstance(fault, StorageError) else type(fault).__name__

    assert outcome("status code: 409 Conflict: <Code>ConditionalRequestConflict</Code>") == "PassingFault"
    assert outcome("status code: 409 Conflict: BlobAlreadyExists") == "FileExistsError"
    assert outcome("status code: 403 Forbidden: <Code>ExpiredToken</Code>") == "PassingFault"
    assert outcome("status code: 507 Insufficient Storage") == "storage.full"
    assert outcome("status code: 301 Moved Permanently") == "storage.refused"
    assert outcome("error sending request: operation timed out") == "PassingFault"
    missing = from_object_error(Exception("Error performing PUT http://169.254.169.254/latest/api/token"), "s3://b/k")
    assert isinstance(missing, PassingFault)
    assert "AWS_ACCESS_KEY_ID" in missing.reason
    assert isinstance(from_os_error(OSError(errno.EIO, "I/O error"), "/x"), PassingFault)


def test_file_system_without_hard_links_is_named(local_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(StorageError, match="no hard links"):
        local_store.put_if_absent("a", b"1")
    assert local_store.list() == []


def test_file_system_that_syncs_no_folders_is_accepted(local_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def only_files(handle: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(handle)

    monkeypatch.setattr(os, "fsync", only_files)
    assert local_store.put_if_absent("deep/a", b"1")


@pytest.mark.hosts
def test_full_disk_and_read_only_mount_for_real(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)], check=True)
    try:
        store = Store(str(tmp_path), QUICK)
        store.put("a", b"1")
        for call in (lambda: store.put("b", bytes(2 * 2**20)), lambda: store.put_if_absent("b", bytes(2 * 2**20))):
            with pytest.raises(StorageError) as error:
                call()
            assert error.value.code == "storage.full"
        assert [o.key for o in store.list()] == ["a"]
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path)], check=True)
        with pytest.raises(StorageError) as error:
            store.put("b", b"1")
        assert error.value.code == "storage.read-only"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


# ---------------------------------------------------------------- the server itself goes away


@pytest.mark.slow
def test_server_killed_and_restarted_while_a_run_writes(own_s3: S3Server, waits: Waits) -> None:
    """Three outages under load: every entry and checkpoint is there once, in order, and nothing is quarantined."""
    settings = StorageSettings(retry_for=90.0, request_timeout=3.0, heartbeat_every=0.2)
    record = RunRecord.create(Store(own_s3.uri("run"), settings, on_wait=waits[1]), {})
    driver = record.claim_driver()
    driver.restore(None)
    log = LogWriter(record.store, driver, "metrics", every_s=0.05)
    stop, errors, steps = threading.Event(), [], [0]

    def train() -> None:
        try:
            while not stop.is_set():
                steps[0] += 1
                log.append({"x": steps[0]})
                if steps[0] % 20 == 0:
                    log.flush()
                    ref = CheckpointRef(steps[0], driver.number)
                    with record.store.open_writer(f"{ref.prefix}/shard") as file:
                        file.write(b"s" * 1000)
                    driver.check()
                    assert record.store.put_if_absent(ref.manifest, f"{ref}".encode())
                stop.wait(0.005)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=train)
    with driver.heartbeat():
        thread.start()
        for _ in range(3):
            before = len(waits[0])
            own_s3.kill()
            _until(lambda before=before: len(waits[0]) > before + 2)
            own_s3.restart()
            reached = steps[0]
            _until(lambda reached=reached: steps[0] > reached + 40)
        stop.set()
        thread.join(100)
    log.close()
    assert errors == []
    view = record.view()
    assert [e["x"] for e in read_log(record.store, view, "metrics")] == list(range(1, steps[0] + 1))
    assert [ref.step for ref in view.checkpoints()] == list(range(steps[0] // 20 * 20, 0, -20))
    assert view.markers == []
    assert record.claim_driver().number == 2


def _until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)

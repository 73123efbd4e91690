"""What every storage must do, on a local path and on S3 alike."""

from __future__ import annotations

import contextlib
import io
import pickle
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pliant.errors import ConfigError, StorageError
from pliant.storage.store import Store, normalize
from tests.storage.conftest import QUICK

BIG = bytes(range(256)) * 4096 * 40  # 40 MiB: several parts


def test_put_get_head_delete(store: Store) -> None:
    store.put("a/b.json", b"one")
    store.put("a/b.json", b"two!")
    assert store.get("a/b.json") == b"two!"
    info = store.head("a/b.json")
    assert info is not None
    assert (info.key, info.size) == ("a/b.json", 4)
    store.delete("a/b.json")
    store.delete("a/b.json")
    assert store.head("a/b.json") is None
    with pytest.raises(FileNotFoundError):
        store.get("a/b.json")


def test_missing_objects_are_file_not_found(store: Store) -> None:
    store.put("folder/x", b"x")
    for name in ("nothing", "folder", "folder/y", "folder/x/z"):
        assert store.head(name) is None
    for read in (store.get, store.open_reader, lambda k: store.get_range(k, 0, 1)):
        for name in ("nothing", "folder", "folder/x/z"):
            with pytest.raises(FileNotFoundError):
                read(name)


def test_create_only_once(store: Store) -> None:
    assert store.put_if_absent("claims/1", b"first")
    assert not store.put_if_absent("claims/1", b"second")
    assert not store.put_if_absent("claims/1", b"first"), "the same bytes from someone else are not ours"
    assert store.get("claims/1") == b"first"


def test_exactly_one_of_eight_racers_wins(store: Store) -> None:
    for round_ in range(10):
        with ThreadPoolExecutor(8) as pool:
            won = list(pool.map(lambda i, r=round_: store.put_if_absent(f"race/{r}", f"{i}".encode()), range(8)))
        assert won.count(True) == 1
        assert store.get(f"race/{round_}") == f"{won.index(True)}".encode()


def test_list_is_sorted_recursive_and_by_folder(store: Store) -> None:
    keys = ["a/1", "a/b/2", "a/b/c/3", "ab/4", "z"]
    for key in reversed(keys):
        store.put(key, key.encode())
    assert [o.key for o in store.list()] == keys
    assert [o.key for o in store.list("a")] == keys[:3]
    assert [o.key for o in store.list("a/b/")] == keys[1:3]
    assert [o.key for o in store.list("a", after="a/1")] == keys[1:3]
    assert store.list("none") == []
    assert [o.size for o in store.list()] == [len(k) for k in keys]
    assert [o.key for o in store.child("a").child("b").list()] == ["2", "c/3"]


def test_folders_are_those_at_the_top(store: Store) -> None:
    assert store.folders() == []
    for key in ("b/1", "b/c/2", "a/1", "z"):
        store.put(key, b"")
    assert store.folders() == ["a", "b"]
    assert store.child("b").folders() == ["c"]


def test_ranges(store: Store) -> None:
    store.put("r", b"0123456789")
    assert store.get_range("r", 2, 5) == b"234"
    assert store.get_range("r", 8, 99) == b"89"
    assert store.get_range("r", 4, 4) == b""


def test_reader_seeks(store: Store) -> None:
    store.put("r", BIG)
    with store.open_reader("r") as file:
        assert file.seekable()
        assert file.read(5) == BIG[:5]
        assert file.seek(-7, io.SEEK_END) == len(BIG) - 7
        assert file.read() == BIG[-7:]
        assert file.read(1) == b""
        file.seek(3)
        assert hash(file.read()) == hash(BIG[3:])
        file.seek(20_000_001)
        target = bytearray(9_000_000)
        assert file.readinto(target) == len(target)
        assert target == BIG[20_000_001:29_000_001]
        with pytest.raises(ValueError, match="before the start"):
            file.seek(-1)
    assert store.get("r") == BIG


@pytest.mark.parametrize("size", [0, 5, len(BIG)])
def test_written_file_is_visible_only_when_closed(store: Store, size: int) -> None:
    with store.open_writer("w/x.bin") as file:
        for offset in range(0, size, 9_999_999):
            file.write(memoryview(BIG)[offset : min(size, offset + 9_999_999)])
        file.flush()
        assert file.tell() == size
        assert store.list() == []
    assert store.get("w/x.bin") == BIG[:size]


@pytest.mark.parametrize("size", [5, len(BIG)])
def test_aborted_file_leaves_nothing(store: Store, size: int) -> None:
    store.put("w/kept", b"")
    file = store.open_writer("w/x.bin")
    file.write(BIG[:size])
    file.abort()
    file.close()
    with contextlib.suppress(ZeroDivisionError), store.open_writer("w/y.bin") as file:
        file.write(BIG[:size])
        raise ZeroDivisionError
    assert [o.key for o in store.list()] == ["w/kept"]


def test_stores_travel_to_other_processes(store: Store) -> None:
    store.put("x", b"1")
    other = pickle.loads(pickle.dumps(store.child("deep")))
    other.put("y", b"2")
    assert other.uri == f"{store.uri}/deep"
    assert [o.key for o in store.list()] == ["deep/y", "x"]


@pytest.mark.parametrize("key", ["", "/x", "x/", "a//b", "../x", "a/./b", "sp ace", "a#1", "ä", ".."])
def test_keys_mean_the_same_everywhere(local_store: Store, key: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a name"):
        local_store.put(key, b"")


def test_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert normalize("runs") == f"{tmp_path}/runs"
    assert normalize("file:///a%20b/c/") == "/a b/c"
    assert normalize("s3://bucket/") == "s3://bucket"
    assert normalize("gs://bucket/x/y/") == "gs://bucket/x/y"
    for bad in ("ftp://x/y", "s3://", "s3:///x"):
        with pytest.raises(ConfigError, match="allowed is a local path"):
            normalize(bad)


def test_local_leftovers_of_a_killed_writer_are_invisible(local_store: Store) -> None:
    local_store.put("d/x", b"1")
    file = local_store.open_writer("d/y")
    file.write(b"half")
    assert [o.key for o in local_store.list()] == ["d/x"]
    assert len(list(local_store.local_path("d").iterdir())) == 2
    local_store.delete("d/x")
    file.close()
    local_store.delete("d/y")
    assert not local_store.local_path("d").exists(), "empty folders go"


def test_deleting_a_folder_and_writing_into_it_at_once(local_store: Store) -> None:
    def churn(i: int) -> None:
        for n in range(60):
            local_store.put(f"d/{i}", str(n).encode())
            assert local_store.get(f"d/{i}") == str(n).encode()
            local_store.delete(f"d/{i}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(churn, range(4)))


def test_bucket_root_and_unknown_bucket(s3_server: object) -> None:
    name = f"t-{uuid.uuid4().hex}"
    root = Store("s3://runs", QUICK)
    root.put(f"{name}/x", b"1")
    assert root.get(f"{name}/x") == b"1"
    for call in (lambda s: s.get("x"), lambda s: s.list("x"), lambda s: s.put_if_absent("x", b"")):
        with pytest.raises(StorageError) as error:
            call(Store("s3://no-such-bucket/x", QUICK))
        assert error.value.code == "storage.no-bucket"

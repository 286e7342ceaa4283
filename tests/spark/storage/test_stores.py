"""The contract of stores, on a folder, in memory and on S3 (moto's server)."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.spark.test_versions import NOW
from tocsin.errors import TocsinError
from tocsin.lab.chaos.object_store import BUCKET, object_store
from tocsin.spark.storage.cache import LocalCache, local_cache
from tocsin.spark.storage.store import Store, address_of, open_store, spark_address
from tocsin.spark.versions.batch import Pins, pinned_versions
from tocsin.spark.versions.store import LOGGED, Versions


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    with object_store(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(params=["folder", "memory", "s3"])
def store(request, tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("TOCSIN_CACHE", str(tmp_path / "cache"))
    if request.param == "folder":
        return open_store(tmp_path / "store")
    if request.param == "memory":
        return open_store(f"memory://{uuid4().hex}/store")
    request.getfixturevalue("s3")
    return open_store(f"s3a://{BUCKET}/{uuid4().hex}/store")


def test_objects_are_written_found_listed_and_removed(store):
    assert store.list() == [] == store.folders()
    store.put("a/1", b"one")
    store.put("a/1", memoryview(b"uno"))
    store.put("a/b/2", b"two")
    store.put("c", b"")
    assert store.get("a/1") == b"uno" and store.find("c") == b"" and store.find("none") is None
    with pytest.raises(FileNotFoundError):
        store.get("none")
    assert [(entry.key, entry.size) for entry in store.list()] == [("a/1", 3), ("a/b/2", 3), ("c", 0)]
    assert [entry.key for entry in store.list("a")] == ["a/1", "a/b/2"]
    assert [entry.key for entry in (store / "a").list()] == ["1", "b/2"]
    assert (store.folders(), store.folders("a"), (store / "a").folders()) == (["a"], ["b"], ["b"])
    assert (store / "a").parent.get("c") == b"" and store.size() == 6
    store.delete(["a/1", "c", "none"])
    assert [entry.key for entry in store.list()] == ["a/b/2"]
    store.delete(["a/b/2"])
    assert store.folders() == []


def test_one_of_many_writes_what_is_new(store):
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: store.put_new("pin", b"%d" % n), range(8)))
    assert sum(found) == 1 and store.get("pin") == b"%d" % found.index(True)


def test_an_object_is_mapped_and_written_from_a_file(store):
    table = pa.table({"id": [1, 2]})
    out = BytesIO()
    with pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    store.put_file("parts/1.arrow", out)
    for _ in range(2):  # the second time from the cache
        with store.map("parts/1.arrow") as source:
            assert pa.ipc.open_file(source).read_all() == table
    with pytest.raises(FileNotFoundError):
        store.map("parts/none.arrow")
    assert store.work_folder().is_dir() or store.is_local


def test_versions_and_pins(store):
    versions, pins = Versions(store / "subscriptions"), Pins(store / "pins", "q")
    with pytest.raises(TocsinError, match="no version"):
        pins.pin(0, versions, NOW)
    versions.publish("CREATE STREAM s (a BIGINT)", [(7, "SELECT * FROM s"), (8, "SELECT a FROM s")])
    assert pins.pin(0, versions, NOW).version == 1
    versions.change(remove=[7])
    assert pins.pin(0, versions, NOW).version == 1  # as before, also in a replay
    pins.set_applied(0, 41)
    assert (pins.pin(1, versions, NOW).version, pins.pin(1, versions, NOW).seq) == (2, 41)
    assert pins.applied(5) == 41
    assert Versions(store / "subscriptions").load(2).subscriptions.ids.tolist() == [8]
    assert pinned_versions(versions.store) == {1, 2}
    assert versions.log.get("v000002.json") == b'{"version": 2}\n'
    pins.remove_before(1)
    assert pinned_versions(versions.store) == {2}
    assert versions.compact(keep=[2, 3]) == 3 and versions.numbers() == [2, 3]
    assert versions.newest().subscriptions.ids.tolist() == [8]
    pins.clear()
    assert pins.store.list() == []


def test_of_several_writers_each_gets_its_version(store):
    place = store / "subscriptions"
    Versions(place).publish("CREATE STREAM s (a BIGINT)", [])
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: Versions(place).change(add=[(n, "SELECT * FROM s")]), range(1, 5)))
    versions = Versions(place)
    assert versions.numbers() == [1, 2, 3, 4, 5]
    assert sorted(versions.newest().subscriptions.ids.tolist()) == [1, 2, 3, 4]


def test_the_log_is_pruned(tmp_path, monkeypatch):
    monkeypatch.setattr("tocsin.spark.versions.store.LOGGED", 2)
    versions = Versions(tmp_path)
    versions.publish("CREATE STREAM s (a BIGINT)", [])
    for number in range(4):
        versions.change(add=[(number, "SELECT * FROM s")])
    assert [entry.key for entry in versions.log.list()] == ["v000004.json", "v000005.json"]
    assert versions.numbers() == [1, 2, 3, 4, 5] and LOGGED > 2


def test_a_version_that_is_half_written_is_none(tmp_path):
    (tmp_path / "v000001").mkdir()
    assert Versions(tmp_path).latest() is None


# -- addresses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["hdfs://host/x", "ftp://x/y", Path("s4://bucket/x"), "dbfs:/x"])
def test_an_unknown_kind_is_rejected_by_name(wrong, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TocsinError, match="unknown kind") as caught:
        open_store(wrong)
    assert caught.value.fact.startswith(str(wrong).partition(":")[0])
    assert not list(tmp_path.iterdir())


def test_addresses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert address_of("state") == str(tmp_path / "state") == address_of(f"file:{tmp_path}/state")
    assert address_of(Path("s3a://b/x")) == "s3://b/x" == address_of("S3://b/x/")
    assert spark_address("gs://b/x") == "gs://b/x"
    with pytest.raises(TocsinError, match="no folder"):
        _ = open_store("memory://a/b").path


# -- the cache -----------------------------------------------------------------------------------------


def test_the_cache_stays_within_its_budget(tmp_path):
    cache = LocalCache(tmp_path, 250)
    first = cache.path("a", lambda: [b"x" * 60, b"x" * 40])
    os.utime(first, (1, 1))
    second = cache.path("b", lambda: [b"x" * 100])
    os.utime(second, (2, 2))
    with pa.memory_map(str(first)) as mapped:
        assert cache.path("a", list) == first  # used: b is the one that goes
        third = cache.path("c", lambda: [b"x" * 100])
        assert (first.exists(), second.exists(), third.exists()) == (True, False, True)
        fourth = cache.path("d", lambda: [b"x" * 300])  # larger than the budget, and needed now
        assert [path.exists() for path in (first, third, fourth)] == [False, False, True]
        assert mapped.read() == b"x" * 100
    assert not [name for name in os.listdir(tmp_path) if name[0] == "."]


def test_an_object_that_cannot_be_fetched_leaves_nothing(tmp_path):
    def fails():
        yield b"half"
        raise OSError("cut off")

    with pytest.raises(OSError, match="cut off"):
        LocalCache(tmp_path, 100).path("a", fails)
    assert not list(tmp_path.iterdir())


def test_the_cache_is_where_it_can_be_written(tmp_path, monkeypatch):
    nowhere = tmp_path / "file"
    nowhere.touch()
    monkeypatch.delenv("TOCSIN_CACHE", raising=False)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{nowhere}/a,{tmp_path}/b")
    assert local_cache().root == tmp_path / "b" / f"tocsin-cache-{os.getuid()}"
    assert local_cache().root.stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{nowhere}/c")
    monkeypatch.setattr("tempfile.gettempdir", lambda: f"{nowhere}/d")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "e"))
    assert local_cache().root.parent == tmp_path / "e"
    monkeypatch.setenv("XDG_CACHE_HOME", f"{nowhere}/e")
    monkeypatch.setenv("TOCSIN_CACHE_BYTES", "7")
    with pytest.raises(TocsinError, match="no folder for the cache"):
        local_cache()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "f"))
    assert local_cache().most == 7
    monkeypatch.setenv("TOCSIN_CACHE_BYTES", "much")
    with pytest.raises(TocsinError, match="TOCSIN_CACHE_BYTES is 'much'"):
        local_cache()


def test_importing_stores_needs_no_client():
    code = "import sys, tocsin.spark.versions.store; sys.exit('obstore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_store_is_named_by_its_address(tmp_path):
    assert pickle.loads(pickle.dumps(open_store(tmp_path))).address == str(tmp_path)

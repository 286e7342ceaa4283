"""How Spark starts: a home without zipped Python code, and a daemon that imports before it forks."""

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pyspark
import pytest

from tocsin.spark import home
from tocsin.spark.classes import archive_of, archive_option
from tocsin.spark.early import local_java
from tocsin.spark.worker_daemon import PRELOADED


def test_a_linked_home_has_scripts_and_jars_and_no_python(tmp_path, monkeypatch):
    monkeypatch.setattr(home, "places", lambda: [Path("/proc/nowhere"), tmp_path])
    for _ in range(2):  # the second finds it
        made = home.linked_home()
        assert made is not None and made.is_relative_to(tmp_path)
        assert sorted(path.name for path in made.iterdir()) == ["bin", "jars"]
        assert (made / "jars").resolve() == (Path(pyspark.__file__).parent / "jars").resolve()
    monkeypatch.setattr(home, "places", lambda: [Path("/proc/nowhere")])
    assert home.linked_home() is None


@pytest.mark.parametrize(
    ("master", "given"),
    [
        ("spark://127.0.0.1:7077", {}),
        ("local[2]", {"SPARK_HOME": "/opt/spark"}),
        ("local[2]", {"PYSPARK_PYTHON": "/usr/bin/python3.9"}),
    ],
)
def test_other_homes_pythons_and_clusters_keep_theirs(master, given, monkeypatch):
    monkeypatch.delenv("SPARK_HOME", raising=False)
    for name, value in ({"PYSPARK_PYTHON": sys.executable} | given).items():
        monkeypatch.setenv(name, value)
    with home.unzipped(master):
        assert home.os.environ.get("SPARK_HOME") == given.get("SPARK_HOME")
    assert home.os.environ.get("SPARK_HOME") == given.get("SPARK_HOME")


def test_what_the_daemon_imports_is_there():
    for name in PRELOADED:
        import_module(name)


def test_only_a_jvm_that_is_driver_and_executor_gets_hosts_early():
    assert local_java(SimpleNamespace()) is None  # Connect
    assert local_java(SimpleNamespace(_sc=SimpleNamespace(master="spark://host:7077"))) is None


@pytest.mark.spark
@pytest.mark.slow
def test_workers_have_the_pyspark_of_the_driver(spark):
    def where(batches):
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict(
                {"path": [pyspark.__file__], "daemon": ["pandas" in sys.modules]}
            )

    (row,) = spark.range(1).coalesce(1).mapInArrow(where, "path string, daemon boolean").collect()
    assert row.path == pyspark.__file__ and row.daemon
    java = local_java(spark)
    assert java is not None and Path(f"/proc/{java}").exists()


def test_a_jvm_uses_an_archive_of_classes_where_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/opt/java")
    assert archive_option(None, "-Xmx1g") == "-Xmx1g"
    assert archive_option(tmp_path, "-Xmx1g") == "-Xmx1g"
    archive_of(tmp_path).touch()
    used = archive_option(tmp_path, "-Xmx1g")
    assert used.startswith(f"-Xmx1g -XX:SharedArchiveFile={archive_of(tmp_path)} ")
    own = "-XX:SharedArchiveFile=/own.jsa"
    assert archive_option(tmp_path, own) == own


def test_another_java_has_another_archive(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    before = archive_of(tmp_path)
    (tmp_path / "release").write_text("JAVA_VERSION=21")
    assert archive_of(tmp_path) != before


@pytest.mark.spark
@pytest.mark.slow
def test_the_session_of_the_tests_maps_the_archive_that_was_made(spark):
    made = home.linked_home()
    if made is None or not archive_of(made).is_file():
        pytest.skip("no archive of classes here: tocsin warmup --spark")
    java = local_java(spark)
    assert str(archive_of(made)) in Path(f"/proc/{java}/maps").read_text()

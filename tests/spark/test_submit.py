"""spark-submit, with the environment of the host and with a packed one. `make test-cluster` runs this."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from tests.spark.test_places import FILE, deltas, lay_out
from tocsin.lab.chaos.cluster import cluster
from tocsin.spark.java import ensure_java

pytestmark = pytest.mark.skipif("TOCSIN_TEST_CLUSTER" not in os.environ, reason="run by make test-cluster")
ROOT = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
QUIET = ["--conf", "spark.sql.shuffle.partitions=2", "--conf", "spark.ui.enabled=false"]


def submit(folder: Path, python: object, *options: str) -> None:
    environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": str(ensure_java().home)}
    command = [SPARK / "bin" / "spark-submit", "--conf", f"spark.pyspark.python={python}", *options, *QUIET]
    ran = subprocess.run(
        [*command, FILE, folder],
        env=environment,
        cwd=folder.parent,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]


def test_on_this_machine(tmp_path):
    embedded = lay_out(tmp_path / "work")
    submit(tmp_path / "work", sys.executable, "--master", "local[2,4]")
    assert deltas(tmp_path / "work") == embedded.emitted


def test_a_packed_environment_on_a_cluster(tmp_path):
    """Driver and executors run on what was packed alone: their Python is the one in the archive."""
    archive = tmp_path / "tocsin.tar.gz"
    venv = Path(sys.prefix)
    subprocess.run(["sh", ROOT / "tools" / "pack.sh", venv, archive], check=True, timeout=400)
    unpacked = tmp_path / "env"  # for the driver
    unpacked.mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", unpacked], check=True, timeout=400)
    embedded = lay_out(tmp_path / "work")
    with cluster(logs=tmp_path / "logs") as master:
        options = ["--master", master, "--archives", f"{archive}#env"]
        submit(tmp_path / "work", "./env/bin/python", *options)
    assert deltas(tmp_path / "work") == embedded.emitted
    assert list(tmp_path.glob("logs/worker-*/*/*/env/bin/python"))

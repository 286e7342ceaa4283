"""One pipeline file, three places: its deltas are those of the embedded engine everywhere.

It takes a JVM or three, and so is run by `make test-cluster`; `make test` runs on one machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.spark.test_pipeline import write
from tests.spark.workload import DDL, Embedded, World, emitted, subscriptions
from tocsin.lab.chaos.cluster import cluster, connect

FILE = Path(__file__).with_name("anywhere.py")
LONG = pytest.mark.skipif("TOCSIN_TEST_CLUSTER" not in os.environ, reason="run by make test-cluster")
PLACES = {"local": lambda logs: nullcontext("local[2,4]"), "cluster": cluster, "connect": connect}


def lay_out(folder: Path) -> Embedded:
    """The input of the pipeline file, in two batches; gives what must come out."""
    folder.mkdir()
    some = [row for row in subscriptions() if row[0] // 100 in (1, 2, 3, 9)]  # filters, joins, top-k
    embedded, world = Embedded(some), World(3)
    (folder / "definitions.sql").write_text(DDL)
    (folder / "subscriptions.json").write_text(json.dumps(some))
    for number in range(2):
        changes = world.changes(60)
        embedded.apply(changes)
        write(folder / "in", number, changes)
    return embedded


def deltas(folder: Path):
    files = sorted(folder.glob("deltas/batch=*/*.json"))
    lines = (json.loads(line) for file in files for line in file.read_text().splitlines())
    return emitted({**line, "row": json.dumps(line["row"], separators=(",", ":"))} for line in lines)


@pytest.mark.spark
@pytest.mark.slow
@LONG
@pytest.mark.parametrize("name", PLACES)
def test_the_same_file_comes_to_the_same_everywhere(name, tmp_path):
    place = PLACES[name](logs=tmp_path / "logs")
    folder = tmp_path / "work"
    embedded = lay_out(folder)
    with place as master:
        ran = subprocess.run(
            [sys.executable, FILE, folder, master], capture_output=True, text=True, timeout=240
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert deltas(folder) == embedded.emitted
    assert len(list(folder.glob("deltas/batch=*"))) == 2

"""What loading the package does not load."""

from __future__ import annotations

import os
import subprocess
import sys

_LIST = "import sys, tocsin; tocsin.Engine; print(*sys.modules)"


def test_the_engine_loads_neither_the_laboratory_nor_published_indexes() -> None:
    loaded = subprocess.run([sys.executable, "-c", _LIST], capture_output=True, text=True, check=True).stdout
    assert "tocsin.engine" in loaded.split()
    for unwanted in ("tocsin.lab", "tocsin.match.published", "tocsin.spark", "tocsin.commands", "pyspark"):
        assert not [name for name in loaded.split() if f"{name}.".startswith(f"{unwanted}.")]


_PUBLISH = """
import sys, tocsin
engine = tocsin.Engine()
engine.execute("CREATE STREAM hits; CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol))")
engine.subscribe("SELECT * FROM hits WHERE page = '/buy' AND ms > 900")
engine.subscribe("SELECT symbol FROM stocks WHERE per BETWEEN 45 AND 70")
assert len(engine.publish("hits", {"page": "/buy", "ms": 950, "who": "Zoë"}))
assert [delta.row for delta in engine.insert("stocks", {"symbol": "GOOG", "per": 52.1})]
print(*sys.modules)
"""


def test_subscribe_and_publish_load_only_what_they_need() -> None:
    env = os.environ | {
        "TOCSIN_JIT": "never"
    }  # whether a kernel is compiled depends on how busy the machine is
    run = subprocess.run(
        [sys.executable, "-c", _PUBLISH], capture_output=True, text=True, check=True, env=env
    )
    for unwanted in ("pandas", "numba", "pyarrow.dataset", "pyarrow.parquet", "rich", "typer", "tocsin.lab"):
        assert not [name for name in run.stdout.split() if f"{name}.".startswith(f"{unwanted}.")]

"""What loading the package does not load."""

from __future__ import annotations

import subprocess
import sys

_LIST = "import sys, tocsin; tocsin.Engine; print(*sys.modules)"


def test_the_engine_loads_neither_the_laboratory_nor_published_indexes() -> None:
    loaded = subprocess.run([sys.executable, "-c", _LIST], capture_output=True, text=True, check=True).stdout
    assert "tocsin.engine" in loaded.split()
    for unwanted in ("tocsin.lab", "tocsin.match.published", "tocsin.spark", "tocsin.commands", "pyspark"):
        assert not [name for name in loaded.split() if f"{name}.".startswith(f"{unwanted}.")]

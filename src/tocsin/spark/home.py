"""A Spark home without zipped Python code, so that Python workers start in a third of the time.

Spark puts `<home>/python/lib/pyspark.zip` first on the path of its Python workers. Python compiles what it
imports from there again in each process: a second of processor time for each daemon and worker. Where the
workers run the Python of this process, its own pyspark serves as well, and is compiled already. So Spark gets
a home that has the scripts and jars of the installed pyspark as links, and nothing else:

    <environment>/share/tocsin/spark-5f0c2a91/bin    ─►   .../site-packages/pyspark/bin
                                              jars   ─►   .../site-packages/pyspark/jars
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tocsin.spark.java import places

__all__ = ["linked_home", "unzipped"]

_PARTS = ("bin", "jars", "conf")  # a user may have added the last


@contextmanager
def unzipped(master: str) -> Iterator[Path | None]:
    """Let a JVM that is started inside use the linked home, if its workers run this Python and pyspark.

    Yields that home, or None if Spark has another one.
    """
    same = os.environ.get("PYSPARK_PYTHON") == sys.executable and "PYSPARK_DRIVER_PYTHON" not in os.environ
    home = linked_home() if same and master.startswith("local") and "SPARK_HOME" not in os.environ else None
    if home is None:
        yield None
        return
    os.environ["SPARK_HOME"] = str(home)
    try:
        yield home
    finally:
        del os.environ["SPARK_HOME"]


def linked_home() -> Path | None:
    """The home, made if need be; None if pyspark has no jars of its own or the home cannot be written."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    if os.name != "posix" or not (installed / "jars").is_dir():
        return None
    name = f"spark-{zlib.crc32(os.fsencode(installed)):08x}"  # two environments can share a folder
    for place in places():
        home = place / "tocsin" / name
        with suppress(OSError):
            home.mkdir(parents=True, exist_ok=True)
            for part in _PARTS:
                if (installed / part).is_dir():
                    with suppress(FileExistsError):
                        (home / part).symlink_to(installed / part)
            return home
    return None

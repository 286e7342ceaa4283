"""An archive of Spark's classes, so that Spark starts in half the time.

A JVM that runs a pipeline loads some 20,000 classes from jars, and parses and verifies each: half of the time
from the start of Spark to the end of the first micro-batch. Java can write the classes that a program has
loaded to an archive, which the next JVM maps into memory (class data sharing). The archive lies beside the
jars that it was made of, in the linked home (`home.py`):

    tocsin warmup --spark ─► a small pipeline ─► <home>/classes-5f0c2a91.jsa ─► session()

A JVM ignores an archive that was made by another Java, or of other jars, and loads the classes as ever; so
nothing depends on it, and it may be removed at any time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tocsin.spark.home import linked_home
from tocsin.spark.java import ensure_java

__all__ = ["archive_of", "archive_option", "make_archive"]

_QUIET = "-Xlog:disable -Xlog:all=warning:stderr"  # stderr goes to the log; stdout is the user's
_SECONDS = 300  # for the pipeline and the archive; usually 30
_DDL = "CREATE STREAM hits; CREATE TABLE pages (page STRING, rank BIGINT, PRIMARY KEY (page))"
_SUBSCRIPTIONS = (
    (1, "SELECT * FROM hits WHERE ms > 5"),
    (2, "SELECT * FROM pages WHERE rank > 5"),
    (3, "SELECT a.page FROM pages a JOIN pages b ON a.rank = b.rank WHERE a.rank > 2"),
    (4, "SELECT page FROM pages WHERE rank > 1 ORDER BY rank LIMIT 2"),
)


def archive_of(home: Path) -> Path:
    """Where the archive of a linked home is, or would be, for the Java of `JAVA_HOME`."""
    java = Path(os.environ.get("JAVA_HOME", ""))
    about = os.fsencode(java)
    with suppress(OSError):
        about += (java / "release").read_bytes()  # another Java at the same path
    return home / f"classes-{zlib.crc32(about):08x}.jsa"


def archive_option(home: Path | None, options: str) -> str:
    """The options of a JVM with the archive added, if there is one and `options` name no other."""
    if home is None or "SharedArchiveFile" in options or "ArchiveClassesAtExit" in options:
        return options
    archive = archive_of(home)
    if not archive.is_file() or any(letter.isspace() for letter in str(archive)):
        return options
    return f"{options} -XX:SharedArchiveFile={archive} {_QUIET}".strip()


def make_archive() -> Path | None:
    """Run a small pipeline and archive its classes, unless that was done; None if it cannot be done here."""
    ensure_java()
    home = linked_home()
    if home is None:
        return None
    target = archive_of(home)
    if target.is_file():
        return target
    with TemporaryDirectory(dir=home, prefix=".classes-") as folder, suppress(subprocess.SubprocessError):
        draft = Path(folder, "classes.jsa")
        # The JVM writes the archive when its input ends, after the Python process that started it has ended.
        # It inherited that process's output, so `run` waits for both.
        subprocess.run(
            [sys.executable, "-m", "tocsin.spark.classes", str(draft)],
            check=True,
            capture_output=True,
            timeout=_SECONDS,
        )
        if draft.is_file():  # a Java without an archive of its own classes writes none
            draft.replace(target)
    return target if target.is_file() else None


# -- the small pipeline, in a process of its own -----------------------------------------------------------


def _rehearse(draft: Path) -> None:
    """A pipeline of two micro-batches, in a JVM that writes its classes to `draft` when it ends."""
    from tocsin.spark.sessions import session

    with TemporaryDirectory() as folder:
        options: dict[str, Any] = {
            "spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={draft} {_QUIET}"
        }
        spark = session("tocsin-classes", **options)
        try:
            _run(spark, Path(folder))
        finally:
            spark.stop()


def _run(spark: Any, folder: Path) -> None:
    from tocsin.spark import Layout, Pipeline

    source = folder / "changes"
    source.mkdir()
    for batch in range(2):
        rows: list[tuple[str, str, dict[str, Any]]] = [("hits", "insert", {"ms": n}) for n in range(20)]
        rows += [("pages", "insert", {"page": f"p{batch}-{n}", "rank": n}) for n in range(20)]
        lines = [
            json.dumps({"table": table, "op": op, "row": json.dumps(row), "seq": 100 * batch + n + 1})
            for n, (table, op, row) in enumerate(rows)
        ]
        (source / f"{batch}.json").write_text("\n".join(lines))
    changes = (
        spark.readStream.schema("table string, op string, row string, seq bigint")
        .option("maxFilesPerTrigger", 1)
        .json(str(source))
    )
    pipeline = Pipeline(
        spark,
        ddl=_DDL,
        subscriptions=_SUBSCRIPTIONS,
        state_dir=folder / "state",
        layout=Layout(tables=2, joins=2, subscriptions=2),
    )
    pipeline.start(
        changes,
        sink=f"parquet:{folder / 'deltas'}",
        dead_letters=f"json:{folder / 'dead_letters'}",
        trigger={"availableNow": True},
    ).awaitTermination()


if __name__ == "__main__":
    _rehearse(Path(sys.argv[1]))

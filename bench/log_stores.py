"""Commits per store, synced: SQLite in WAL mode, LMDB (if it is installed), a plain file.

    python bench/log_stores.py [FOLDER]

Each commit has a group of records (120 bytes) and of deltas (200 bytes). Stores take turns.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

COMMITS, ROUNDS = 200, 6
GROUPS = (1, 8, 64)
BODY, BLOCK = os.urandom(120), os.urandom(200)


def sqlite(folder: Path, group: int) -> Callable[[int], None]:
    """One transaction over two tables, as the server's log."""
    found = sqlite3.connect(folder / "log.sqlite", isolation_level=None)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
        found.execute(f"PRAGMA {pragma}")
    found.execute("CREATE TABLE commands (position INTEGER PRIMARY KEY, body BLOB)")
    found.execute("CREATE TABLE blocks (position INTEGER PRIMARY KEY, body BLOB)")

    def commit(first: int) -> None:
        found.execute("BEGIN IMMEDIATE")
        for table, body in ("commands", BODY), ("blocks", BLOCK):
            rows = [(first + number, body) for number in range(group)]
            found.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
        found.execute("COMMIT")

    return commit


def lmdb(folder: Path, group: int) -> Callable[[int], None]:
    """The same over two databases of one environment."""
    import lmdb

    environment = lmdb.open(str(folder), map_size=1 << 30, max_dbs=2)
    commands, blocks = (environment.open_db(name, integerkey=True) for name in (b"commands", b"blocks"))

    def commit(first: int) -> None:
        with environment.begin(write=True) as transaction:
            for number in range(first, first + group):
                key = number.to_bytes(8, "little")
                transaction.put(key, BODY, db=commands, append=True)
                transaction.put(key, BLOCK, db=blocks, append=True)

    return commit


def plain_file(folder: Path, group: int) -> Callable[[int], None]:
    """Bytes appended to a file."""
    file = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)

    def commit(first: int) -> None:
        os.write(file, (BODY + BLOCK) * group)
        os.fdatasync(file)

    return commit


def main(where: str | None) -> None:
    """Print a line for each store and size of groups; stores take turns, so that the disk is fair to them."""
    stores = [sqlite, lmdb, plain_file]
    try:
        import lmdb as _  # noqa: F401
    except ModuleNotFoundError:
        stores.remove(lmdb)
        print("lmdb is not installed: pip install lmdb")
    print(f"{'store':12}{'group':>5}{'p50':>9}{'p90':>9}{'p99':>9}   ms; p50 of each round")
    for group in GROUPS:
        taken: dict[str, list[Any]] = {store.__name__: [] for store in stores}
        for _round in range(ROUNDS):
            for store in stores:
                taken[store.__name__].append(_measured(store, group, where))
        for name, rounds in taken.items():
            quantiles = 1000 * np.quantile(np.concatenate(rounds), [0.5, 0.9, 0.99])
            medians = " ".join(f"{1000 * np.median(one):.2f}" for one in rounds)
            print(
                f"{name:12}{group:5}" + "".join(f"{value:9.2f}" for value in quantiles),
                f"  {medians}",
                flush=True,
            )


def _measured(store: Callable[[Path, int], Callable[[int], None]], group: int, where: str | None) -> Any:
    """Seconds of each commit into a new folder."""
    with tempfile.TemporaryDirectory(dir=where) as folder:
        commit, taken = store(Path(folder), group), np.zeros(COMMITS)
        for number in range(COMMITS):
            start = time.perf_counter()
            commit(number * group)
            taken[number] = time.perf_counter() - start
        return taken


if __name__ == "__main__":
    main(*sys.argv[1:2] or [None])

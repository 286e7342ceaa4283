"""Subscriptions on disk: versions that never change, and pins that say which one a batch uses.

    <path>/v000001/manifest.json        definitions, the number of subscriptions, and a random uuid
    <path>/v000001/subscriptions.arrow  id, subscriber, sql, valid_from, valid_to; mapped, not read
    <path>/log/v000001.json             the same news as a file that Spark reads as a stream

A new set of subscriptions is a new version. It is written aside and renamed into place, so a
version is there whole or not at all; of two writers the slower takes the next number. Whoever keeps
something made of a version keeps it by the uuid: the directory may be removed and made anew.

A micro-batch must see one version, also when it is run a second time after a crash. Whoever
first asks, driver or worker, creates `pins/<query>/<batch>` with the newest version, the last
applied seq and the time of the batch; everyone else, and every replay, finds that file. That is
the only agreement between processes here, and linking a finished file to its name makes it: a
link either appears with its whole content or fails because the name is taken.

>>> import tempfile
>>> versions = Versions(tempfile.mkdtemp())
>>> versions.publish("CREATE STREAM s (a BIGINT)", as_table([(7, "SELECT * FROM s WHERE a > 1")]))
1
>>> versions.load(1).table.column("id").to_pylist()
[7]
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc

from tocsin.errors import TocsinError
from tocsin.spark.entries import SCHEMA, Entry, as_table, checked, definitions, refuse_changed_ids

__all__ = ["SCHEMA", "Entry", "Pin", "Pins", "Version", "Versions", "as_table", "create", "definitions"]

KEPT = 200  # pins of a query: Spark can replay the last 100 batches of a checkpoint


@dataclass(frozen=True)
class Version:
    """One set of subscriptions and the definitions they are written against."""

    number: int
    ddl: str
    table: pa.Table
    uuid: str = ""  # differs if the directory was made anew, though the number may be the same

    def entries(self) -> list[Entry]:
        return [Entry(**row) for row in self.table.to_pylist()]


class Versions:
    """The versions under one directory. Safe with several writers and any number of readers."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def log(self) -> Path:
        """A directory with one small JSON file per version, for a file source to watch."""
        return self.path / "log"

    def numbers(self) -> list[int]:
        """The versions there are, in order."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return sorted(int(name[1:]) for name in names if name[0] == "v" and name[1:].isdigit())

    def latest(self) -> int | None:
        numbers = self.numbers()
        return numbers[-1] if numbers else None

    def load(self, number: int) -> Version:
        """A version. Read once per process: versions do not change, unless all are removed."""
        return _load(str(self.path), number, self.uuid(number))

    def uuid(self, number: int) -> str:
        """What tells a version from another of the same number that was here before."""
        return str(self._manifest(number)["uuid"])

    def _manifest(self, number: int) -> dict[str, Any]:
        file = self.path / f"v{number:06d}" / "manifest.json"
        try:
            manifest = json.loads(file.read_text())
        except FileNotFoundError:
            raise TocsinError(
                f"there is no version {number} of the subscriptions", hint=f"looked in {self.path}"
            ) from None
        manifest.setdefault("uuid", str(file.stat().st_mtime_ns))  # written before there were uuids
        return dict(manifest)

    def publish(self, ddl: str, table: pa.Table) -> int:
        """Write a new version and return its number; the newest one's if nothing changed."""
        table = checked(table)
        while True:
            newest = self.latest()
            if newest is not None:
                old = self.load(newest)
                if old.ddl == ddl and old.table.equals(table):
                    return newest
                refuse_changed_ids(old.table, table)
            number = (newest or 0) + 1
            if self._write(number, ddl, table):
                return number  # else another writer took the number: compare with what it wrote

    def _write(self, number: int, ddl: str, table: pa.Table) -> bool:
        name = f"v{number:06d}"
        aside = self.path / f".{name}-{uuid.uuid4().hex}"
        aside.mkdir(parents=True)
        try:
            with ipc.new_file(aside / "subscriptions.arrow", SCHEMA) as writer:
                writer.write_table(table)
            manifest = {
                "version": number,
                "subscriptions": len(table),
                "uuid": uuid.uuid4().hex,
                "ddl": ddl,
            }
            (aside / "manifest.json").write_text(json.dumps(manifest, indent=1))
            os.rename(aside, self.path / name)  # fails if the name is taken: its directory is not empty
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            if (self.path / name).exists():
                return False
            raise
        self.log.mkdir(exist_ok=True)
        _replace(self.log / f"{name}.json", json.dumps({"version": number}) + "\n")
        return True


@lru_cache(maxsize=8)
def _load(path: str, number: int, uuid: str) -> Version:
    manifest = Versions(path)._manifest(number)
    with pa.memory_map(f"{path}/v{number:06d}/subscriptions.arrow") as source:
        return Version(number, manifest["ddl"], ipc.open_file(source).read_all(), uuid)


# -- pins --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pin:
    """What a batch runs on: a version, the last seq applied before it, and its time in microseconds.

    What a batch tells before any change is applied is told at seq 0 (`told`).
    """

    version: int
    seq: int
    micros: int

    @property
    def told(self) -> int:
        return max(self.seq, 0)

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.micros // 1_000_000, UTC).replace(
            microsecond=self.micros % 1_000_000
        )


class Pins:
    """The pins of one query."""

    def __init__(self, path: str | Path, query: str) -> None:
        self.path = Path(path) / query

    def get(self, batch: int) -> Pin | None:
        """The pin of a batch, if someone asked before."""
        try:
            return Pin(**json.loads((self.path / f"{batch}.json").read_text()))
        except FileNotFoundError:
            return None

    def pin(self, batch: int, versions: Versions, now: datetime) -> Pin:
        """The pin of a batch: found, or made of the newest version and `now`."""
        found = self.get(batch)
        if found is not None:
            return found
        newest = versions.latest()
        if newest is None:
            raise TocsinError(
                "there is no version of the subscriptions to run on", hint=f"looked in {versions.path}"
            )
        micros = (now - datetime.fromtimestamp(0, UTC)) // _MICROSECOND
        mine = Pin(newest, self.applied(batch - 1), micros)
        create(self.path / f"{batch}.json", json.dumps(asdict(mine)))
        self.forget(before=batch - KEPT)
        theirs = self.get(batch)  # mine, or that of whoever was faster
        assert theirs is not None
        return theirs

    def applied(self, batch: int) -> int:
        """The last seq applied up to the end of a batch; -1 before the first, so that 0 may be the first."""
        with suppress(FileNotFoundError):
            return int((self.path / f"{batch}.applied").read_text())
        done = [int(n[:-8]) for n in self._names() if n.endswith(".applied")]
        before = [number for number in done if number <= batch]
        return self.applied(max(before)) if before else -1

    def set_applied(self, batch: int, seq: int) -> None:
        """Record the last seq of a finished batch; a replay records the same again."""
        self.path.mkdir(parents=True, exist_ok=True)
        _replace(self.path / f"{batch}.applied", str(seq))

    def forget(self, before: int) -> None:
        """Remove what no replay can ask for any more."""
        for name in self._names():
            number = name.split(".")[0]
            if number.isdigit() and int(number) < before:
                with suppress(FileNotFoundError):
                    os.unlink(self.path / name)

    def clear(self) -> None:
        """Forget everything: the query begins anew."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []


_MICROSECOND = datetime.resolution


def create(path: Path, text: str) -> None:
    """Create a file with this content unless the name is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    _write_through(aside, text)
    try:
        os.link(aside, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(aside)


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    _write_through(aside, text)
    os.replace(aside, path)


def _write_through(path: Path, text: str) -> None:
    with open(path, "x") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())

"""Subscriptions on disk: versions that never change, and pins that say which one a batch uses.

    <path>/v000001/manifest.json        definitions and the number of subscriptions
    <path>/v000001/subscriptions.arrow  id, subscriber, sql, valid_from, valid_to; mapped, not read
    <path>/log/v000001.json             the same news as a file that Spark reads as a stream

A new set of subscriptions is a new version. It is written aside and renamed into place, so a
version is there whole or not at all; of two writers the slower takes the next number.

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
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc as ipc

from tocsin.engine import Engine
from tocsin.errors import SubscriptionError, TocsinError

__all__ = ["SCHEMA", "Entry", "Pin", "Pins", "Version", "Versions", "as_table", "definitions"]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("subscriber", pa.string()),
        pa.field("sql", pa.string(), nullable=False),
        pa.field("valid_from", pa.timestamp("us", tz="UTC")),
        pa.field("valid_to", pa.timestamp("us", tz="UTC")),
    ]
)


class Entry(NamedTuple):
    """One subscription of a version."""

    id: int
    sql: str
    subscriber: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None


@dataclass(frozen=True)
class Version:
    """One set of subscriptions and the definitions they are written against."""

    number: int
    ddl: str
    table: pa.Table

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
        """A version. Read once per process: versions do not change."""
        return _load(str(self.path), number)

    def publish(self, ddl: str, table: pa.Table) -> int:
        """Write a new version and return its number; the newest one's if nothing changed."""
        table = _checked(table)
        while True:
            newest = self.latest()
            if newest is not None:
                old = self.load(newest)
                if old.ddl == ddl and old.table.equals(table):
                    return newest
                _refuse_changed_ids(old.table, table)
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
            manifest = {"version": number, "subscriptions": len(table), "ddl": ddl}
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
def _load(path: str, number: int) -> Version:
    folder = Path(path) / f"v{number:06d}"
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
    except FileNotFoundError:
        raise TocsinError(
            f"there is no version {number} of the subscriptions", hint=f"looked in {path}"
        ) from None
    with pa.memory_map(str(folder / "subscriptions.arrow")) as source:
        return Version(number, manifest["ddl"], ipc.open_file(source).read_all())


# -- pins --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pin:
    """What a batch runs on: a version, the last seq applied before it, and its time in microseconds."""

    version: int
    seq: int
    micros: int

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
        _create(self.path / f"{batch}.json", json.dumps(asdict(mine)))
        theirs = self.get(batch)  # mine, or that of whoever was faster
        assert theirs is not None
        return theirs

    def applied(self, batch: int) -> int:
        """The last seq applied up to the end of a batch; 0 before the first."""
        with suppress(FileNotFoundError):
            return int((self.path / f"{batch}.applied").read_text())
        done = [int(n[:-8]) for n in self._names() if n.endswith(".applied")]
        before = [number for number in done if number <= batch]
        return self.applied(max(before)) if before else 0

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


def _create(path: Path, text: str) -> None:
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


# -- what may be a set of subscriptions --------------------------------------------------------------


def as_table(subscriptions: Any) -> pa.Table:
    """A set of subscriptions as an Arrow table: from one, an engine, or rows.

    Rows are mappings or tuples (id, sql, subscriber, valid_from, valid_to) of which only the
    first two must be there.
    """
    if isinstance(subscriptions, pa.Table):
        missing = pa.nulls(len(subscriptions))
        columns = [subscriptions[f.name] if f.name in subscriptions.column_names else missing for f in SCHEMA]
        return pa.table([c.cast(f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    if isinstance(subscriptions, Engine):
        subscriptions = [
            {name: getattr(s, name) for name in SCHEMA.names} for s in subscriptions.subscriptions()
        ]
    return pa.Table.from_pylist([_row(row) for row in _iterate(subscriptions)], schema=SCHEMA)


def definitions(engine: Engine) -> str:
    """The CREATE statements of an engine's streams and tables."""
    return ";\n".join(map(str, engine.schemas()))


def _iterate(subscriptions: Any) -> Iterable[Any]:
    if isinstance(subscriptions, str) or not isinstance(subscriptions, Iterable):
        raise SubscriptionError(
            f"a set of subscriptions cannot be made of {type(subscriptions).__name__}",
            hint="give an engine, an Arrow table, a list of (id, sql) or a directory of versions",
        )
    return subscriptions


def _row(row: Any) -> dict[str, Any]:
    values = dict(row) if isinstance(row, Mapping) else Entry(*row)._asdict()
    if not isinstance(values.get("id"), int) or not isinstance(values.get("sql"), str):
        raise SubscriptionError(
            f"not a subscription: {row!r}", hint="an id (integer) and an sql (text) are needed"
        )
    return values


def _checked(table: pa.Table) -> pa.Table:
    """The table in order of id; duplicate ids are refused."""
    table = as_table(table).combine_chunks().sort_by("id")
    counts = pc.value_counts(table["id"])
    for item in counts:
        if item["counts"].as_py() > 1:
            raise SubscriptionError(f"subscription {item['values']} is there {item['counts']} times")
    return table


def _refuse_changed_ids(old: pa.Table, new: pa.Table) -> None:
    """An id keeps its meaning for life: whoever keeps contents by id could not tell the two apart."""
    fixed = ["sql", "valid_from", "valid_to"]
    both = (
        old.join(new, "id", join_type="inner", left_suffix="", right_suffix="_new")
        if len(old) and len(new)
        else None
    )
    if both is None:
        return
    for name in fixed:
        was, now = both[name], both[f"{name}_new"]
        same = pc.or_kleene(pc.equal(was, now), pc.and_(pc.is_null(was), pc.is_null(now)))
        changed = both.filter(pc.invert(pc.fill_null(same, False)))
        if len(changed):
            row = changed.slice(0, 1).to_pylist()[0]
            raise SubscriptionError(
                f"subscription {row['id']} has another {name} than before: "
                f"{row[name]!r} became {row[f'{name}_new']!r}",
                hint="give the new one a new id",
            )

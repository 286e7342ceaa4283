"""Subscriptions on disk: versions that never change.

    <path>/parts/<name>.arrow           lots of subscriptions (`parts.py`), mapped and shared by versions
    <path>/v000001/manifest.json        definitions, the parts, a random uuid, and where all this came from
    <path>/v000001/<name>.gone.npy      the rows of a part that are not there any more
    <path>/log/v000001.json             the same news as a file that Spark reads as a stream

A change of the subscriptions is a new version: a part with what was added, and the rows that went. It is
written aside and renamed into place, so a version is there whole or not at all; of two writers the
slower takes the next number. Whoever keeps something made of a version keeps it by the uuid: the directory
may be removed and made anew. Which version a batch runs on is said by its pin (`pins.py`).

>>> import tempfile
>>> versions = Versions(tempfile.mkdtemp())
>>> versions.publish("CREATE STREAM s (a BIGINT)", [(7, "SELECT * FROM s WHERE a > 1")])
1
>>> versions.change(add=[(8, "SELECT * FROM s")], remove=[7])
2
>>> versions.load(2).chosen.ids.tolist()
[8]
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from tocsin.errors import SubscriptionError, TocsinError
from tocsin.model.columns import Index
from tocsin.spark.versions.entries import SCHEMA, Entry, as_table, definitions
from tocsin.spark.versions.lots import Lot, lots_of
from tocsin.spark.versions.parts import Chosen, Part, check, load_part, merged, write_part
from tocsin.spark.versions.pins import Pin, Pins, create, put

__all__ = [
    "SCHEMA",
    "Entry",
    "Pin",
    "Pins",
    "Version",
    "Versions",
    "as_table",
    "create",
    "definitions",
    "draft",
]

FORMAT = 2
MANY = 48  # parts of a version before they are written anew as few


@dataclass(frozen=True)
class Version:
    """One set of subscriptions and the definitions they are written against."""

    number: int
    ddl: str
    chosen: Chosen
    uuid: str = ""  # differs if the directory was made anew, though the number may be the same
    taken: Mapping[str, Any] = field(default_factory=dict)  # how far each log of changes has come in

    def entries(self) -> list[Entry]:
        """All of them as texts, in order of id: for people and tests."""
        found = (
            Entry(s.id, s.sql, s.subscriber, s.valid_from, s.valid_to)
            for s in check(self.ddl, self.chosen.lots())[0].subscriptions()
        )
        return sorted(found, key=lambda entry: entry.id)

    @cached_property
    def table(self) -> pa.Table:
        """Those that were given as texts, in order of id."""
        texts = [lot.table.cast(SCHEMA) for lot in self.chosen.lots() if lot.kind == "texts"]
        return pa.concat_tables([SCHEMA.empty_table(), *texts]).combine_chunks().sort_by("id")

    @cached_property
    def subscribers(self) -> tuple[Chosen, Any]:
        """Where to look for an id, and whose it is; None if nobody is named at all."""
        return self.chosen, self.chosen.subscribers()


NOTHING = Version(0, "", Chosen())


def draft(ddl: str, subscriptions: Any) -> Version:
    """A version that is not written: checked, and placed."""
    return Version(0, ddl, Chosen.all_of(check(ddl, lots_of(subscriptions))[1]))


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

    def newest(self) -> Version:
        """The newest version; an empty one with number 0 if there is none."""
        number = self.latest()
        return NOTHING if number is None else self.load(number)

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
        if manifest.get("format", 1) > FORMAT:
            raise TocsinError(
                f"version {number} of the subscriptions has format {manifest['format']}, not {FORMAT}",
                hint="it was written by a newer tocsin: use that one",
            )
        manifest.setdefault("uuid", str(file.stat().st_mtime_ns))  # the first ones had none
        return {"format": 1, "parts": [], "taken": {}, **manifest}

    # -- writing ---------------------------------------------------------------------------------

    def publish(self, ddl: str, subscriptions: Any) -> int:
        """Make these all that there are; returns the version's number, the newest one's if they are already.

        An id keeps its meaning: to give it another, `change(replace=...)`.
        """
        parts = check(ddl, lots_of(subscriptions))[1]
        wanted = Chosen.all_of(parts)
        with self._alone():
            while True:
                old = self.newest()
                there = wanted.find(old.chosen.ids)
                _refuse_changed(old.chosen, wanted, there)
                stays = (there >= 0) & _same_subscribers(old.chosen, wanted, there)
                gone = old.chosen.ids[~stays]
                added = wanted.without(old.chosen.ids[stays])
                if not len(gone) and not len(added) and old.number and old.ddl == ddl:
                    return old.number
                number = self._next(old, ddl, old.chosen.take(stays), added, old.taken)
                if number is not None:
                    return number  # else another writer took the number: compare with what it wrote

    def declare(self, ddl: str, subscriptions: Any, by: str = "config") -> int:
        """As `publish`, but what others did since stays: only what `by` declared before may go.

        What `by` declares as it did before, and others have replaced or removed meanwhile, stays so. The
        first to declare takes over all that there is.
        """
        declared = Chosen.all_of(check(ddl, lots_of(subscriptions))[1])
        order = np.argsort(declared.ids)
        said = {
            f"declared:{by}": declared.ids[order].tolist(),
            f"meant:{by}": declared.digests[order].tolist(),
        }
        with self._alone():
            while True:
                old = self.newest()
                before = np.array(old.taken.get(f"declared:{by}", old.chosen.ids.tolist()), np.int64)
                others = _changed_since(old, declared, before, old.taken.get(f"meant:{by}"))
                wanted = declared.without(others)
                there = wanted.find(old.chosen.ids)
                _refuse_changed(old.chosen, wanted, there)
                theirs = ~np.isin(old.chosen.ids, before) | np.isin(old.chosen.ids, others)
                stays = ((there >= 0) & _same_subscribers(old.chosen, wanted, there)) | (theirs & (there < 0))
                taken = {**old.taken, **said}
                added = wanted.without(old.chosen.ids[stays])
                if stays.all() and not len(added) and old.number and (old.ddl, old.taken) == (ddl, taken):
                    return old.number
                number = self._next(old, ddl, old.chosen.take(stays), added, taken)
                if number is not None:
                    return number

    def change(
        self,
        *,
        add: Any = (),
        replace: Any = (),
        remove: Iterable[int] | Index = (),
        ddl: str | None = None,
        taken: Mapping[str, Any] | None = None,
    ) -> int:
        """Change the newest version by some subscriptions, all or nothing; returns the new number.

        `replace` takes ids that are there or not; `add` and `remove` insist. `taken` notes how far a log of
        changes has come in.
        """
        fresh, anew = _lots(add), _lots(replace)
        gone = np.unique(np.array(list(remove), np.int64)) if not isinstance(remove, np.ndarray) else remove
        with self._alone():
            while True:
                old = self.newest()
                said = old.ddl if ddl is None else ddl
                added = Chosen.all_of(check(said, [*fresh, *anew])[1])
                replaced = np.concatenate([lot.ids for lot in anew] or [np.empty(0, np.int64)])
                _refuse_missing(old.chosen, gone)
                _refuse_there(old.chosen, added.without(replaced).ids)
                if said != old.ddl:
                    check(said, old.chosen.without(np.concatenate([gone, replaced])).lots())
                stays = old.chosen.without(np.concatenate([gone, replaced]))
                nothing = not (len(added) or len(gone)) and said == old.ddl
                if nothing and (taken is None or taken == old.taken):
                    return old.number
                number = self._next(old, said, stays, added, {**old.taken, **(taken or {})})
                if number is not None:
                    return number

    def compact(self, keep: Collection[int] | None = None) -> int:
        """Write the newest version anew as few parts, and remove versions but the newest and `keep`.

        Returns its number. Without `keep`, no version is removed.
        """
        with self._alone():
            while True:
                old = self.newest()
                if not old.number:
                    raise TocsinError(
                        "there is no version of the subscriptions", hint=f"looked in {self.path}"
                    )
                number: int | None = old.number
                if any(len(rows) < len(part) for part, rows in old.chosen.parts) or len(old.chosen.parts) > 3:
                    number = self._next(old, old.ddl, Chosen(), _together(old.chosen), old.taken)
                if number is not None:
                    break
            if keep is not None:
                later = {n for n in self.numbers() if n > max(keep, default=0)}  # than the caller knew of
                self._forget({*keep, *later, number})
            return number

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One writer at a time: parts that a version is about to name must not be removed meanwhile."""
        import fcntl

        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / "writing.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _next(
        self, old: Version, ddl: str, stays: Chosen, added: Chosen, taken: Mapping[str, Any]
    ) -> int | None:
        """Write the version after `old`; None if somebody else did."""
        if len(stays.parts) + len(added.parts) > MANY:
            stays, added = Chosen(), _together(merged([stays, added]))
        names = [(part.name, rows, len(part)) for part, rows in stays.parts]
        for lot, part, rows in ((part.lot, part, rows) for part, rows in added.parts):
            one = part if len(rows) == len(part) else _cut(part, lot.take(rows), rows)
            names.append((write_part(self.path / "parts", one), np.arange(len(one)), len(one)))
        return self._write(old.number + 1, ddl, names, taken)

    def _write(
        self, number: int, ddl: str, parts: Sequence[tuple[str, Index, int]], taken: Mapping[str, Any]
    ) -> int | None:
        name = f"v{number:06d}"
        aside = self.path / f".{name}-{uuid.uuid4().hex}"
        aside.mkdir(parents=True)
        manifest = {
            "format": FORMAT,
            "version": number,
            "subscriptions": sum(len(rows) for _, rows, _ in parts),
            "uuid": uuid.uuid4().hex,
            "taken": dict(taken),
            "parts": [part for part, _, _ in parts],
            "ddl": ddl,
        }
        try:
            for part, rows, count in parts:
                if len(rows) < count:
                    np.save(aside / f"{part}.gone.npy", np.setdiff1d(np.arange(count), rows).astype(np.int32))
            (aside / "manifest.json").write_text(json.dumps(manifest, indent=1))
            os.rename(aside, self.path / name)  # fails if the name is taken: its directory is not empty
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            if (self.path / name).exists():
                return None
            raise
        self.log.mkdir(exist_ok=True)
        put(self.log / f"{name}.json", json.dumps({"version": number}) + "\n")
        return number

    def _forget(self, keep: Collection[int]) -> None:
        """Remove all other versions, and the parts that none of these has."""
        used = {
            name for number in self.numbers() if number in keep for name in self._manifest(number)["parts"]
        }
        for number in self.numbers():
            if number not in keep:
                shutil.rmtree(self.path / f"v{number:06d}", ignore_errors=True)
        for file in (self.path / "parts").glob("*.arrow"):
            if file.stem not in used:
                with suppress(FileNotFoundError):
                    file.unlink()


@lru_cache(maxsize=8)
def _load(path: str, number: int, uuid: str) -> Version:
    manifest = Versions(path)._manifest(number)
    if manifest["format"] == 1:  # one file of texts
        with pa.memory_map(f"{path}/v{number:06d}/subscriptions.arrow") as source:
            return replace(draft(manifest["ddl"], ipc.open_file(source).read_all()), number=number, uuid=uuid)
    parts = []
    for name in manifest["parts"]:
        part = load_part(f"{path}/parts", name)
        rows = np.arange(len(part))
        gone = Path(path) / f"v{number:06d}" / f"{name}.gone.npy"
        parts.append((part, np.setdiff1d(rows, np.load(gone)) if gone.exists() else rows))
    return Version(number, manifest["ddl"], Chosen(tuple(parts)), uuid, manifest["taken"])


def _changed_since(old: Version, declared: Chosen, ids: Index, meant: Sequence[int] | None) -> Index:
    """Of what is declared as before, the ids that others have replaced or removed meanwhile."""
    if meant is None or len(meant) != len(ids):
        return np.empty(0, np.int64)
    known = dict(zip(ids.tolist(), meant, strict=True))
    pairs = zip(declared.ids.tolist(), declared.digests.tolist(), strict=True)
    same = np.array([known.get(number) == digest for number, digest in pairs], np.bool_)
    there = old.chosen.find(declared.ids)
    now = np.append(old.chosen.digests, np.uint64(0))[there]
    return declared.ids[same & ((there < 0) | (now != declared.digests))]


def _lots(subscriptions: Any) -> list[Lot]:
    return [lot for lot in lots_of(subscriptions) if len(lot)]


def _cut(part: Part, lot: Lot, rows: Index) -> Part:
    return Part("", lot, part.digests[rows], part.homes, part.home[rows])


def _together(chosen: Chosen) -> Chosen:
    """The same subscriptions in as few parts as there are kinds, templates and columns."""
    alike: dict[Any, list[tuple[Part, Index]]] = {}
    for part, rows in chosen.parts:
        if len(rows):
            alike.setdefault((part.lot.kind, part.lot.about, part.lot.table.schema), []).append((part, rows))
    out = []
    for (kind, about, _), some in alike.items():
        homes: dict[Any, int] = {}
        codes = [
            np.array([homes.setdefault(home, len(homes)) for home in part.homes], np.int16)[part.home[rows]]
            for part, rows in some
        ]
        table = pa.concat_tables(
            [part.lot.table.take(pa.array(rows)) for part, rows in some]
        ).combine_chunks()
        digests = np.concatenate([part.digests[rows] for part, rows in some])
        out.append(Part("", Lot(kind, about, table), digests, tuple(homes), np.concatenate(codes)))
    return Chosen.all_of(out)


def _same_subscribers(old: Chosen, new: Chosen, there: Index) -> Any:
    """Whether each of the old is whose it is in the new, where `there`."""
    before, after = old.subscribers(), new.subscribers()
    if before is None and after is None:
        return np.ones(len(old), np.bool_)
    was = np.full(len(old), None, object) if before is None else before.to_numpy(zero_copy_only=False)
    now = np.full(len(new) + 1, None, object)
    if after is not None:
        now[:-1] = after.to_numpy(zero_copy_only=False)
    return was == now[there]


def _refuse_changed(old: Chosen, new: Chosen, there: Index) -> None:
    """An id keeps its meaning: whoever keeps contents by id could not tell the two apart."""
    both = np.flatnonzero(there >= 0)
    if not len(both):
        return
    other = both[old.digests[both] != new.digests[there[both]]]
    if not len(other):
        return
    number = old.ids[other[0]]
    was, now = (some.only(np.array([number])).lots()[0] for some in (old, new))
    fact = f"subscription {number} is given another meaning"
    if was.kind == now.kind == "texts":
        before, after = was.table.to_pylist()[0], now.table.to_pylist()[0]
        name = next(name for name in ("sql", "valid_from", "valid_to") if before[name] != after[name])
        fact = (
            f"subscription {number} has another {name} than before: {before[name]!r} became {after[name]!r}"
        )
    raise SubscriptionError(fact, hint="give the new one a new id, or replace it")


def _refuse_missing(there: Chosen, ids: Index) -> None:
    if len(missing := ids[there.find(ids) < 0]):
        raise SubscriptionError(f"there is no subscription {missing[0]}", hint="nothing was changed")


def _refuse_there(there: Chosen, ids: Index) -> None:
    if len(twice := ids[there.find(ids) >= 0]):
        raise SubscriptionError(
            f"there is a subscription {twice[0]} already", hint="replace it, or give the new one a new id"
        )

"""Versions of an index on disk: immutable segments as files that any process maps.

    root/segments/<name>/checks.slot.npy, checks.start.npy, ..., segment.json, texts.arrow, backwards.arrow
    root/versions/<number>.json          which segments, and every name and pattern by number
    root/versions/<number>.owner.npy     which segment owns a slot

A segment is written once and shared by all versions that hold it. A version appears when its JSON file does,
by renaming, so a reader sees a whole version or none. Mapping copies nothing: pages are read when a match
touches them, and processes on one host share them.

Names on disk are part of the format. Where an attribute of `ImmutableSegment` has another name, `_ON_DISK`
has both.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.errors import TocsinError
from tocsin.match.segments.immutable import (
    AccessLists,
    BitTable,
    ConjunctionTests,
    DimensionPairs,
    ImmutableSegment,
    SegmentArrays,
    ValuePairs,
)
from tocsin.model.buffers import to_arrow

__all__ = ["drop_unused", "last_version", "open_segment", "read_version", "write_segment", "write_version"]

FORMAT = 4
_ON_DISK = {"tests": "checks", "unindexed": "always", "unconditional": "every"}  # attribute: name on disk
_IN_MEMORY = {name: attribute for attribute, name in _ON_DISK.items()}
_ARRAYS: tuple[tuple[str, Any], ...] = (  # by attribute of `SegmentArrays`
    ("tests", ConjunctionTests),
    ("direct", AccessLists),
    ("checked", AccessLists),
    ("shared", AccessLists),
    ("pairs", DimensionPairs),
    ("values", ValuePairs),
)


def write_segment(root: Path, segment: ImmutableSegment) -> str:
    """Write a segment under a new name, whole or not at all; returns the name."""
    name = uuid.uuid4().hex
    place, made = root / "segments" / name, root / "segments" / f".{name}"
    made.mkdir(parents=True)
    plain: dict[str, Any] = {
        "format": FORMAT,
        "patterns": segment.patterns,
        "expected": _renamed(segment.expected, _ON_DISK),
        "costly": segment.costly,
        "fixed": _renamed(segment.fixed, _ON_DISK),
        "width": segment.arrays.width,
    }
    for path, value in _fields(segment):
        if isinstance(value, np.ndarray):
            np.save(made / f"{path}.npy", np.ascontiguousarray(value))
        else:
            plain[path] = value
    for field in ("texts", "backwards"):
        table = pa.table({"text": getattr(segment, field)})
        with (
            pa.OSFile(str(made / f"{field}.arrow"), "wb") as file,
            pa.ipc.new_file(file, table.schema) as out,
        ):
            out.write_table(table, max_chunksize=max(1, table.num_rows))
    (made / "segment.json").write_text(json.dumps(plain), "utf-8")
    made.rename(place)
    return name


def open_segment(root: Path, name: str) -> ImmutableSegment:
    """A segment whose arrays are mapped files."""
    place = root / "segments" / name
    try:
        plain = json.loads((place / "segment.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise TocsinError(f"segment {name} cannot be read: {error}", hint="write the version again") from None
    if plain["format"] != FORMAT:
        raise TocsinError(
            f"segment {name} has format {plain['format']}, and {FORMAT} is read here",
            hint="write the version again with this release",
        )

    def load(path: str) -> Any:
        if path in plain:
            return plain[path]
        # Copy-on-write, so that the arrays have the type that the compiled code was made for.
        return np.asarray(np.load(place / f"{path}.npy", mmap_mode="c"))

    def group(name: str, kind: Any) -> Any:
        return kind(*(load(f"{_ON_DISK.get(name, name)}.{field}") for field in kind._fields))

    groups = {name: group(name, kind) for name, kind in _ARRAYS}
    return ImmutableSegment(
        load("key"),
        load("cuts"),
        load("cut_start"),
        _texts(place / "texts.arrow"),
        _texts(place / "backwards.arrow"),
        tuple((kind, text) for kind, text in plain["patterns"]),
        SegmentArrays(**groups, unindexed=load(_ON_DISK["unindexed"]), width=plain["width"]),
        group("bits", BitTable),
        load(_ON_DISK["unconditional"]),
        _renamed(plain["expected"], _IN_MEMORY),
        [(slot, cost) for slot, cost in plain["costly"]],
        _renamed(plain["fixed"], _IN_MEMORY),
    )


def write_version(root: Path, content: dict[str, Any], owner: Any) -> int:
    """Write the next version; returns its number."""
    folder = root / "versions"
    folder.mkdir(parents=True, exist_ok=True)
    number = (last_version(root) or 0) + 1
    np.save(folder / f"{number}.owner.npy", owner)
    made = folder / f".{number}.json"
    made.write_text(json.dumps({"format": FORMAT, **content}), "utf-8")
    os.replace(made, folder / f"{number}.json")
    return number


def last_version(root: Path) -> int | None:
    """The newest version's number, if there is one."""
    found = [int(file.stem) for file in (root / "versions").glob("[0-9]*.json")]
    return max(found, default=None)


def read_version(root: Path, number: int | None = None) -> tuple[int, dict[str, Any], Any]:
    """A version (the newest, if None): its number, its content, and the owners of slots."""
    wanted = last_version(root) if number is None else number
    if wanted is None:
        raise TocsinError(f"there is no version in {root}", hint="write one with Auto.save")
    folder = root / "versions"
    try:
        content: dict[str, Any] = json.loads((folder / f"{wanted}.json").read_text("utf-8"))
        owner = np.array(np.load(folder / f"{wanted}.owner.npy"))
    except (OSError, ValueError) as error:
        raise TocsinError(f"version {wanted} of {root} cannot be read: {error}") from None
    return wanted, content, owner


def drop_unused(root: Path, keep: int = 2) -> int:
    """Remove all versions but the newest ones, and segments that none of them holds; returns how many."""
    numbers = sorted(int(file.stem) for file in (root / "versions").glob("[0-9]*.json"))
    used: set[str] = set()
    for number in numbers[-keep:]:
        used.update(entry["name"] for entry in read_version(root, number)[1]["segments"])
    for number in numbers[:-keep]:
        for file in (root / "versions").glob(f"{number}.*"):
            file.unlink()
    unused = [place for place in (root / "segments").iterdir() if place.name not in used]
    for place in unused:
        shutil.rmtree(place)
    return len(unused)


def _fields(segment: ImmutableSegment) -> list[tuple[str, Any]]:
    """All arrays and numbers of a segment, by name on disk."""
    plain = [(name, getattr(segment, name)) for name in ("key", "cuts", "cut_start", "unconditional")]
    out = [(_ON_DISK.get(name, name), value) for name, value in plain]
    out += [(_ON_DISK["unindexed"], segment.arrays.unindexed)]
    groups = [(_ON_DISK.get(name, name), getattr(segment.arrays, name)) for name, _ in _ARRAYS]
    for name, group in [*groups, ("bits", segment.bits)]:
        out += [(f"{name}.{field}", value) for field, value in zip(group._fields, group, strict=True)]
    return out


def _renamed(by_path: dict[str, float], names: dict[str, str]) -> dict[str, float]:
    return {names.get(path, path): value for path, value in by_path.items()}


def _texts(file: Path) -> Any:
    table = pa.ipc.open_file(pa.memory_map(str(file))).read_all()
    column = table["text"].combine_chunks()
    return column if isinstance(column, pa.Array) else to_arrow([], pa.large_binary())

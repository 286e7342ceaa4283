"""Discards compiled code whose sources have changed.

Numba stores compiled functions beside their source and recompiles them when that file changes. It does not
notice when a function *called* from another file has changed: the stored code would give wrong answers. So
each room with kernels has a stamp: sizes and times of its kernel sources and of those in rooms below. When
the stamp differs, all compiled code of the room is discarded.

Rooms with kernels are found by walking the package. `LEVELS` declares which rooms are below which; a room
that is not declared there depends on all others.

>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     room = Path(folder, "match", "_kernels")
...     (room / "__pycache__").mkdir(parents=True)
...     _ = (room / "scan.py").write_text("x = 1"), (room / "__pycache__" / "scan.f.nbi").write_text("code")
...     discard_stale(Path(folder)), discard_stale(Path(folder))
(1, 0)
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

__all__ = ["INLINED", "LEVELS", "discard_stale", "kernel_sources"]

LEVELS = (("model",), ("predicate", "stab"), ("store",), ("match", "join", "rank"), ("lab",))
"""Rooms with kernels, from the lowest: a kernel calls those of its own room and of rooms below."""

INLINED = ("predicate/codes.py", "predicate/flat.py")
"""Other modules that kernels import constants from: compiled code contains their values."""


def discard_stale(package: Path) -> int:
    """Discard compiled code whose sources have changed; returns how many files were removed."""
    rooms = kernel_sources(package)
    below = blake2b(digest_size=16)
    for name in INLINED:
        _add(below, package / name)
    declared = {room for level in LEVELS for room in level}
    removed = 0
    for level in LEVELS:
        through = below.copy()
        for room in level:
            own = below.copy()
            for source in rooms.get(room, ()):
                _add(own, source)
                _add(through, source)
            if room in rooms:
                removed += _discard(package / room, own.hexdigest())
        below = through
    others = [room for room in rooms if room not in declared]
    for room in others:
        for source in rooms[room]:
            _add(below, source)
    return removed + sum(_discard(package / room, below.hexdigest()) for room in others)


def kernel_sources(package: Path) -> dict[str, list[Path]]:
    """The kernel sources of each room (a folder of the package): `_kernels.py` and files in `_kernels/`."""
    found: dict[str, list[Path]] = {}
    for folder, folders, files in os.walk(package):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        here = Path(folder).relative_to(package)
        for name in sorted(files):
            if name == "_kernels.py" or (name.endswith(".py") and "_kernels" in here.parts):
                found.setdefault((here / name).parts[0], []).append(Path(folder, name))
    return found


def _add(stamp: blake2b, source: Path) -> None:
    if source.exists():
        seen = source.stat()
        stamp.update(f"{source.name} {seen.st_size} {seen.st_mtime_ns};".encode())


def _discard(room: Path, stamp: str) -> int:
    """Discard the compiled code of a room if its stamp has changed, and store the new stamp."""
    stored = room / "__pycache__" / "compiled.stamp"
    try:
        if stored.exists() and stored.read_text() == stamp:
            return 0
        stale = list(room.rglob("__pycache__/*.nb[ci]"))
        for path in stale:
            path.unlink(missing_ok=True)
        stored.parent.mkdir(exist_ok=True)
        stored.write_text(stamp)
    except OSError:  # a read-only folder: nothing was stored there either
        return 0
    return len(stale)

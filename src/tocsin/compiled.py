"""Compiled code is not kept longer than what it was compiled from.

Numba keeps compiled functions beside their source and compiles them again when that file changes; that a
function *calls* one of another file which has changed, it does not notice, and answers would be wrong. So
each room has a stamp: the sizes and times of its compiled files' sources and of those below it. When it is
not what it was, all that is kept of the room is thrown away.

>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     room = Path(folder, "match", "_kernels")
...     (room / "__pycache__").mkdir(parents=True)
...     _ = (room / "scan.py").write_text("x = 1"), (room / "__pycache__" / "scan.f.nbi").write_text("kept")
...     discard_stale(Path(folder)), discard_stale(Path(folder))
(1, 0)
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

__all__ = ["discard_stale"]

LEVELS = (("model",), ("predicate", "stab"), ("store",), ("match", "join", "rank"), ("lab",))
"""Rooms with compiled code, from the lowest: a room calls its own and those below."""
BESIDE = ("predicate/flat.py",)  # numbers that compiled code has taken in


def discard_stale(package: Path) -> int:
    """Throw compiled code away whose sources have changed; how many files that were."""
    below = blake2b(digest_size=16)
    for name in BESIDE:
        _note(below, package / name)
    removed = 0
    for rooms in LEVELS:
        level = below.copy()
        for room in rooms:
            own = below.copy()
            for source in _sources(package / room):
                _note(own, source)
                _note(level, source)
            removed += _compare(package / room, own.hexdigest())
        below = level
    return removed


def _sources(room: Path) -> Iterator[Path]:
    return iter(sorted([*room.rglob("_kernels.py"), *room.rglob("_kernels/*.py")]))


def _note(stamp: blake2b, source: Path) -> None:
    if source.exists():
        seen = source.stat()
        stamp.update(f"{source.name} {seen.st_size} {seen.st_mtime_ns};".encode())


def _compare(room: Path, stamp: str) -> int:
    """Throw away what is kept of a room if its stamp has changed, and note the new one."""
    if not room.is_dir():
        return 0
    kept = room / "__pycache__" / "compiled.stamp"
    try:
        if kept.exists() and kept.read_text() == stamp:
            return 0
        stale = list(room.rglob("__pycache__/*.nb[ci]"))
        for path in stale:
            path.unlink(missing_ok=True)
        kept.parent.mkdir(exist_ok=True)
        kept.write_text(stamp)
    except OSError:  # a folder that may not be written: then nothing was kept there either
        return 0
    return len(stale)

"""Where compiled code is stored: a cache of our own, whatever NUMBA_CACHE_DIR says.

    TOCSIN_CACHE                        if it is set
    <venv>/var/tocsin                   if that folder is there: `make setup` makes it
    the user's cache directory/tocsin   otherwise: ~/.cache on Linux

    <root>/<Python, Numba, LLVM, CPU>/<module>.<kernel>-<digest>-<types>.nbc    one file per kernel and types

A file is written once and never changed: another source, version or CPU has another name. Code is read from
every root that has it and written to the first that can be written, so a read-only installation, several
users, several versions side by side and packed environments work. A process that is about to compile a kernel
locks its name in `<root>/lock`; others wait for it and read the result.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from tocsin.compiled.digest import digest

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from tocsin.compiled.kernel import Kernel

__all__ = ["FileLock", "file_name", "is_stored", "read", "roots", "write"]

_log = logging.getLogger("tocsin.compiled")


def roots() -> tuple[Path, ...]:
    """The folders that compiled code is read from, in order; it is written to the first that allows it."""
    return _roots(os.environ.get("TOCSIN_CACHE"), sys.prefix)


@cache
def _roots(chosen: str | None, prefix: str) -> tuple[Path, ...]:
    if chosen:
        return (Path(chosen).expanduser(),)
    found = [Path(prefix, "var", "tocsin")] if Path(prefix, "var", "tocsin").is_dir() else []
    if sys.platform == "darwin":
        base = "~/Library/Caches"
    elif sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        found.append(Path(base).expanduser() / "tocsin")
    except RuntimeError:  # there is no home directory
        found.append(Path(tempfile.gettempdir(), f"tocsin-{os.getuid() if hasattr(os, 'getuid') else ''}"))
    return tuple(found)


def file_name(kernel: Kernel, types: str) -> str:
    """The name of the file with the code of a kernel for these types, below a root."""
    return f"{_stem(kernel)}-{types}.nbc"


def is_stored(kernel: Kernel) -> bool:
    """Whether the cache has compiled code of this kernel for any types and CPU."""
    stem = _stem(kernel)
    return any(name.startswith(stem) for names in _stored() for name in names)


@cache
def _stored() -> tuple[tuple[str, ...], ...]:
    """The names of all files at the first look of this process."""
    listed: list[tuple[str, ...]] = []
    for root in roots():
        try:
            folders = [entry.path for entry in os.scandir(root) if entry.is_dir()]
            listed.extend(tuple(os.listdir(folder)) for folder in folders)
        except OSError:
            continue
    return tuple(listed)


def _stem(kernel: Kernel) -> str:
    function = kernel.py_func
    return f"{function.__module__.removeprefix('tocsin.')}.{function.__qualname__}-{digest(kernel)}"


def read(folder: str, name: str) -> bytes | None:
    """The contents of a file, from the first root that has it."""
    for root in roots():
        try:
            return (root / folder / name).read_bytes()
        except OSError:
            continue
    return None


def write(folder: str, name: str, content: bytes) -> Path | None:
    """Write a file to the first root that allows it; None if none does, which is logged once."""
    for root in roots():
        path = root / folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".new-", delete=False) as file:
                file.write(content)
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except OSError as error:
            _log.debug("%s cannot be written: %s", path, error)
            continue
        return path
    _say_once(f"compiled code cannot be stored in {' or '.join(map(str, roots()))}: set TOCSIN_CACHE")
    return None


@cache
def _say_once(text: str) -> None:
    _log.warning(text)


class FileLock:
    """Waits until no other process compiles the same kernel; does nothing where that cannot be known.

    One file per root serves all kernels: each locks one byte of it.
    """

    def __init__(self, folder: str, name: str) -> None:
        self._byte = int.from_bytes(blake2b(f"{folder}/{name}".encode(), digest_size=4).digest(), "big")
        self._file = _lock_file()
        if self._file is not None:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX, 1, self._byte)
            except OSError:
                self._file = None

    def release(self) -> None:
        """Let others go on."""
        if self._file is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, self._byte)
            self._file = None


@cache
def _lock_file() -> int | None:
    """The open lock file of this process; it stays open, since closing it would release all locks."""
    if fcntl is None:  # Windows: processes may compile the same kernel twice
        return None
    for root in roots():
        try:
            root.mkdir(parents=True, exist_ok=True)
            return os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:
            continue
    return None

"""A cache on this machine's disk: immutable objects are fetched once per host, and mapped by all processes.

    <root>/tocsin-cache-<uid>/<digest of the address>          a fetched object
                              work/<digest>/                   files derived from a store (`work_folder`)

The root is the first place that can be written of `TOCSIN_CACHE`, the folders of `spark.local.dir` (Spark
names them to its workers), the temporary folder, and `~/.cache`. The folder belongs to one user alone. It has
at most `TOCSIN_CACHE_BYTES` (by default 10 GB, and half of what is free): what was used least recently is
evicted. A file that is mapped meanwhile stays readable until it is closed.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

from tocsin.errors import TocsinError

__all__ = ["BUDGET", "CACHE", "LocalCache", "local_cache", "make_private"]

CACHE, BUDGET = "TOCSIN_CACHE", "TOCSIN_CACHE_BYTES"
SPARK_FOLDERS = "SPARK_LOCAL_DIRS"  # Spark sets it for its Python workers
DEFAULT_BYTES = 10 << 30
UNUSED = 7 * 86400.0  # seconds after which derived files are removed
_WORK = "work"


class LocalCache:
    """Files by address, below one folder. Any number of processes may use it."""

    def __init__(self, folder: Path, most: int) -> None:
        self.root, self.most = folder, most

    def path(self, address: str, fetch: Callable[[], Iterable[bytes]]) -> Path:
        """The file with an object's content; fetched if it is not there."""
        file = self.root / _digest(address)
        with suppress(FileNotFoundError):
            os.utime(file)  # it is used now
            return file
        draft = self.root / f".{uuid.uuid4().hex}"
        try:
            with open(draft, "xb") as out:
                for chunk in fetch():
                    out.write(chunk)
            os.replace(draft, file)
        finally:
            draft.unlink(missing_ok=True)
        self.evict(keep=file)
        return file

    def folder(self, address: str) -> Path:
        """A folder for files that are derived from the store at an address."""
        work = self.root / _WORK / _digest(address)
        work.mkdir(parents=True, exist_ok=True)
        os.utime(work)
        return work

    def evict(self, keep: Path | None = None) -> None:
        """Remove what was used least recently, down to the budget; O(files)."""
        files = sorted(self._files())
        there = sum(size for _, size, _ in files)
        for _, size, file in files:
            if there <= self.most:
                break
            if file != keep:
                file.unlink(missing_ok=True)
                there -= size
        old = time.time() - UNUSED
        with suppress(FileNotFoundError):
            for work in os.scandir(self.root / _WORK):
                if work.stat().st_mtime < old:
                    shutil.rmtree(work.path, ignore_errors=True)

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        for entry in os.scandir(self.root):
            with suppress(FileNotFoundError):
                if entry.is_file() and entry.name[0] != ".":
                    facts = entry.stat()
                    yield facts.st_mtime, facts.st_size, Path(entry.path)


def local_cache() -> LocalCache:
    """The cache of this process; raises if no place can be written."""
    places = [os.environ.get(CACHE, ""), *os.environ.get(SPARK_FOLDERS, "").split(",")]
    return _cache(tuple(filter(None, places)), os.environ.get(BUDGET, ""))


@lru_cache(maxsize=4)
def _cache(places: tuple[str, ...], budget: str) -> LocalCache:
    reasons = []
    for root in (*map(Path, places), *_defaults()):
        folder = root / f"tocsin-cache-{os.getuid()}"
        try:
            root.mkdir(parents=True, exist_ok=True)
            make_private(folder)
            probe = folder / f".{uuid.uuid4().hex}"
            probe.touch()
            probe.unlink()
        except (OSError, TocsinError) as error:
            reasons.append(f"{folder}: {getattr(error, 'strerror', None) or error}")
            continue
        return LocalCache(folder, _bytes(budget, folder))
    raise TocsinError(
        f"no folder for the cache can be written: {'; '.join(reasons)}", hint=f"set {CACHE} to one"
    )


def _defaults() -> Iterator[Path]:
    with suppress(FileNotFoundError):  # none of the usual ones can be written
        yield Path(tempfile.gettempdir())
    with suppress(RuntimeError):  # there is no home directory
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())


def _bytes(budget: str, folder: Path) -> int:
    if not budget:
        return min(DEFAULT_BYTES, shutil.disk_usage(folder).free // 2)
    if not budget.isdecimal():
        raise TocsinError(f"{BUDGET} is {budget!r}", hint="a number of bytes")
    return int(budget)


def _digest(address: str) -> str:
    return blake2b(address.encode(), digest_size=16).hexdigest()


def make_private(directory: Path) -> None:
    """Make a directory for this user alone; raise if it exists and is anything else."""
    directory.mkdir(mode=0o700, exist_ok=True)
    facts = directory.lstat()
    if (
        not directory.is_dir()
        or directory.is_symlink()
        or facts.st_uid != os.getuid()
        or facts.st_mode & 0o077
    ):
        raise TocsinError(f"{directory} is not a directory of this user alone", hint="remove it")

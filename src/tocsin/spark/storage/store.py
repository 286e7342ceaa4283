"""Stores: named bytes under an address. All that a pipeline keeps, except Spark's checkpoint, is in one.

    /data/state, file:///data/state       a folder, which all hosts of the pipeline see
    s3://bucket/state (or s3a://)         S3, and what speaks its protocol
    gs://bucket/state                     Google Cloud Storage
    abfss://container@account.dfs.core.windows.net/state      Azure
    memory://name/state                   this process alone, for tests

A store has no locks, links or renames. `put` and `put_new` write an object whole or not at all; `put_new`
does so only if there is none, so that of several processes exactly one decides. Credentials and endpoints
come from the environment of each process (`AWS_ENDPOINT_URL`, `AWS_REGION`, roles, ...), as `obstore` reads
them.

>>> store = open_store("memory://doctest") / "pins"
>>> store.put_new("1.json", b"a"), store.put_new("1.json", b"b"), store.get("1.json")
(True, False, b'a')
>>> open_store("hdfs://host/state")
Traceback (most recent call last):
...
tocsin.errors.TocsinError: hdfs://host/state is an address of an unknown kind
hint: a folder, or one of s3://, s3a://, gs://, abfs://, abfss://, memory://
"""

from __future__ import annotations

import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import ENOENT
from functools import lru_cache
from glob import iglob
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa

from tocsin.errors import TocsinError

__all__ = ["LocalStore", "Store", "StoredObject", "address_of", "open_store", "spark_address"]

Content = bytes | memoryview
SCHEMES = ("s3", "s3a", "gs", "abfs", "abfss", "memory")
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/{1,2}(?=[^/])")  # Path("s3://a") has one slash
_SAME = {"s3a": "s3"}
_SPARKS = {"s3": "s3a"}  # what Spark's file systems call it


class StoredObject(NamedTuple):
    """An object of a store, as a list shows it."""

    key: str
    size: int
    modified: float  # seconds since 1970


class Store(ABC):
    """Objects by key. Keys are relative, with `/` between their parts, as in `parts/1.arrow`."""

    address: str  # of its root

    @abstractmethod
    def __truediv__(self, name: str) -> Store:
        """The part of the store below a prefix."""

    @property
    @abstractmethod
    def parent(self) -> Store:
        """The store that this one is a part of; the root of a bucket is its own."""

    @abstractmethod
    def find(self, key: str) -> bytes | None:
        """The content of an object, or None."""

    def get(self, key: str) -> bytes:
        """The content of an object; raises FileNotFoundError."""
        found = self.find(key)
        if found is None:
            raise FileNotFoundError(ENOENT, os.strerror(ENOENT), f"{self.address}/{key}")
        return found

    @abstractmethod
    def put(self, key: str, data: Content) -> None:
        """Write an object, or replace it."""

    def put_file(self, key: str, file: IO[bytes]) -> None:
        """Write an object from a file that was written up to here."""
        file.seek(0)
        self.put(key, file.read())

    @abstractmethod
    def put_new(self, key: str, data: Content) -> bool:
        """Write an object if there is none; returns whether this call has written it."""

    @abstractmethod
    def list(self, prefix: str = "") -> Sequence[StoredObject]:
        """All objects below a prefix, in order of key."""

    @abstractmethod
    def folders(self, prefix: str = "") -> Sequence[str]:
        """The next part of the keys below a prefix, where more parts follow; in order."""

    @abstractmethod
    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there count as removed."""

    @abstractmethod
    def map(self, key: str) -> Any:
        """An immutable object as a mapped Arrow file; raises FileNotFoundError."""

    @abstractmethod
    def work_folder(self) -> Path:
        """A folder on this machine's disk for files that are derived from the store's."""

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether no other process writes what this one writes inside; a store without locks cannot say."""
        yield False

    @property
    def path(self) -> Path:
        """The folder of a store on disk; raises for others."""
        raise TocsinError(f"{self.address} is no folder", hint="it is an object store")

    @property
    def is_local(self) -> bool:
        """Whether it is a folder on disk."""
        return False

    def size(self) -> int:
        """The bytes of all objects."""
        return sum(entry.size for entry in self.list())

    def __str__(self) -> str:
        return self.address


class LocalStore(Store):
    """Files of a folder. They are flushed before they are named, so a crash leaves none that is cut off."""

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder)
        self.address = str(self._path)

    def __truediv__(self, name: str) -> LocalStore:
        return LocalStore(self._path / name)

    @property
    def parent(self) -> LocalStore:
        return LocalStore(self._path.parent)

    @property
    def path(self) -> Path:
        return self._path

    @property
    def is_local(self) -> bool:
        return True

    def find(self, key: str) -> bytes | None:
        try:
            return (self._path / key).read_bytes()
        except FileNotFoundError:
            return None

    def put(self, key: str, data: Content) -> None:
        os.replace(self._draft(key, data), self._path / key)

    def put_new(self, key: str, data: Content) -> bool:
        if (self._path / key).exists():
            return False
        draft = self._draft(key, data)
        try:
            os.link(draft, self._path / key)  # with its whole content, or fails because the name exists
        except FileExistsError:
            return False
        finally:
            os.unlink(draft)
        return True

    def _draft(self, key: str, data: Content) -> Path:
        target = self._path / key
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}-{uuid.uuid4().hex}")
        with open(draft, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return draft

    def list(self, prefix: str = "") -> Sequence[StoredObject]:
        found = []
        for folder, folders, names in os.walk(self._path / prefix):
            folders[:] = [name for name in folders if name[0] != "."]
            for name in names:
                if name[0] != ".":
                    file = Path(folder, name)
                    with suppress(FileNotFoundError):  # removed meanwhile
                        facts = file.stat()
                        found.append(
                            StoredObject(
                                file.relative_to(self._path).as_posix(), facts.st_size, facts.st_mtime
                            )
                        )
        return sorted(found)

    def folders(self, prefix: str = "") -> Sequence[str]:
        try:
            inside = sorted(entry.name for entry in os.scandir(self._path / prefix) if entry.is_dir())
        except FileNotFoundError:
            return []
        root = self._path / prefix  # one without files is about to get its first, or has lost its last
        return [name for name in inside if name[0] != "." and any(iglob("*", root_dir=root / name))]

    def delete(self, keys: Iterable[str]) -> None:
        folders = set()
        for key in keys:
            (self._path / key).unlink(missing_ok=True)
            folders.add((self._path / key).parent)
        for folder in folders:
            with suppress(OSError):  # it is not empty
                folder.rmdir()

    def map(self, key: str) -> Any:
        return pa.memory_map(str(self._path / key))

    def work_folder(self) -> Path:
        return self._path

    @contextmanager
    def alone(self) -> Iterator[bool]:
        import fcntl

        self._path.mkdir(parents=True, exist_ok=True)
        with open(self._path / "writing.lock", "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError:  # some network file systems have no locks
                yield False
            else:
                yield True


# -- addresses -----------------------------------------------------------------------------------------


def address_of(place: str | Path) -> str:
    """The address of a store in one spelling: an absolute path, or `scheme://...`; raises for unknown kinds.

    >>> address_of("s3a://bucket/state/"), address_of(Path("s3://bucket/state")), address_of("file:///data")
    ('s3://bucket/state', 's3://bucket/state', '/data')
    """
    text = str(place)
    found = _ADDRESS.match(text)
    if found is None or found[1] == "file":
        return str(Path(re.sub(r"^file:(//)?", "", text)).absolute())
    scheme, rest = found[1].lower(), text[found.end() :].rstrip("/")
    if scheme not in SCHEMES:
        known = ", ".join(f"{name}://" for name in SCHEMES)
        raise TocsinError(
            f"{scheme}://{rest} is an address of an unknown kind", hint=f"a folder, or one of {known}"
        )
    return f"{_SAME.get(scheme, scheme)}://{rest}"


def spark_address(address: str) -> str:
    """An address as Spark's file systems know it.

    >>> spark_address("s3://bucket/state"), spark_address("/data/state")
    ('s3a://bucket/state', '/data/state')
    """
    scheme, mark, rest = address.partition("://")
    return f"{_SPARKS.get(scheme, scheme)}{mark}{rest}" if mark else address


def open_store(place: str | Path | Store) -> Store:
    """The store at an address; one that is open already is returned as it is."""
    if isinstance(place, Store):
        return place
    return _opened(address_of(place), os.getpid())


@lru_cache(maxsize=256)
def _opened(address: str, process: int) -> Store:
    """By process, because connections do not outlive a fork."""
    if "://" not in address:
        return LocalStore(address)
    from tocsin.spark.storage.objects import ObjectStore

    return ObjectStore.at(address)

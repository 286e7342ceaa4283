"""Object stores: S3, Google Cloud Storage, Azure, and memory, through `obstore`.

Object stores have conditional writes (`If-None-Match: *` on S3): `put_new` needs nothing else. A lost answer
makes a client repeat its request, and then it may meet its own object: whoever needs to know writes something
unique and reads it again (`versions/store.py`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import pyarrow as pa

from tocsin.errors import TocsinError
from tocsin.spark.storage.cache import local_cache
from tocsin.spark.storage.store import Content, Store, StoredObject

__all__ = ["ObjectStore"]


class ObjectStore(Store):
    """Objects of a bucket below a prefix."""

    def __init__(self, bucket: Any, address: str, prefix: str) -> None:
        self.address, self._bucket, self._prefix = address, bucket, prefix

    @classmethod
    def at(cls, address: str) -> ObjectStore:
        """The store at an address with one of the schemes of `store.py`."""
        parts = urlsplit(address)
        root = f"{parts.scheme}://{parts.netloc}"
        if not parts.netloc:
            raise TocsinError(f"{address} names no bucket", hint="write it as s3://bucket/folder")
        prefix = parts.path.strip("/")
        return cls(_bucket(root, os.getpid()), address, f"{prefix}/" if prefix else "")

    def __truediv__(self, name: str) -> ObjectStore:
        return ObjectStore(self._bucket, f"{self.address}/{name}", f"{self._prefix}{name}/")

    @property
    def parent(self) -> ObjectStore:
        if not self._prefix:
            return self
        prefix = self._prefix.rstrip("/").rpartition("/")[0]
        return ObjectStore(self._bucket, self.address.rpartition("/")[0], f"{prefix}/" if prefix else "")

    def find(self, key: str) -> bytes | None:
        try:
            return bytes(_obstore().get(self._bucket, self._prefix + key).bytes())
        except FileNotFoundError:
            return None

    def put(self, key: str, data: Content) -> None:
        _obstore().put(self._bucket, self._prefix + key, _octets(data))

    def put_file(self, key: str, file: IO[bytes]) -> None:
        file.seek(0)
        _obstore().put(self._bucket, self._prefix + key, file)  # in parts, if it is large

    def put_new(self, key: str, data: Content) -> bool:
        errors = _obstore().exceptions
        try:
            _obstore().put(self._bucket, self._prefix + key, _octets(data), mode="create")
        except (errors.AlreadyExistsError, errors.PreconditionError):
            return False
        return True

    def list(self, prefix: str = "") -> Sequence[StoredObject]:
        start = len(self._prefix)
        found = _obstore().list(self._bucket, (self._prefix + prefix).rstrip("/") or None).collect()
        entries = [
            StoredObject(one["path"][start:], one["size"], one["last_modified"].timestamp()) for one in found
        ]
        return sorted(entries)

    def folders(self, prefix: str = "") -> Sequence[str]:
        place = (self._prefix + prefix).rstrip("/") or None
        found = _obstore().list_with_delimiter(self._bucket, place)["common_prefixes"]
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError):
                _obstore().delete(self._bucket, self._prefix + key)

    def map(self, key: str) -> Any:
        while True:
            path = local_cache().path(f"{self.address}/{key}", lambda: self._chunks(key))
            try:
                return pa.memory_map(str(path))
            except FileNotFoundError:  # another process has evicted it since
                continue

    def _chunks(self, key: str) -> Iterable[Any]:
        return iter(_obstore().get(self._bucket, self._prefix + key).stream())

    def work_folder(self) -> Path:
        return local_cache().folder(self.address)


@lru_cache(maxsize=64)
def _bucket(root: str, process: int) -> Any:
    """The client of a bucket; one for each process, because its threads do not outlive a fork."""
    _obstore()
    from obstore.store import MemoryStore, from_url

    if root.startswith("memory:"):
        return MemoryStore()
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    plain = root.startswith("s3:") and endpoint.startswith("http://")
    try:
        return from_url(root, client_options={"allow_http": True}) if plain else from_url(root)
    except Exception as error:  # of many types: a key of the environment, a malformed name
        raise TocsinError(f"{root} cannot be opened: {error}", hint="see docs/spark.md, Storage") from error


def _octets(data: Content) -> Content:
    """As unsigned bytes: the client accepts no others, and Arrow's are signed."""
    return data.cast("B") if isinstance(data, memoryview) else data


def _obstore() -> Any:
    try:
        import obstore
        import obstore.exceptions
    except ModuleNotFoundError:
        raise TocsinError(
            "an object store needs the package obstore", hint="pip install 'tocsin[spark]'"
        ) from None
    return obstore

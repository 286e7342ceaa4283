"""Who may do what: tokens and quotas of tenants, in the file `access.json` of the server's folder.

    {"tenants": {"acme": {"quota": {"subscriptions": 10000},
                          "tokens": [{"name": "ci", "hash": "9f86...", "scopes": ["publish", "read"]}]}}}

A token is 32 random bytes; the file has its SHA-256 alone, which is enough for a secret that nobody can
guess. The file is replaced at once and read again when it changes: a token that is removed ends with its next
request.

>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     access = AccessControl(Path(folder))
...     token = access.add_token("acme", "ci", [Scope.READ])
...     access.found(token).tenant, access.found("wrong")
('acme', None)
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import msgspec

from tocsin.errors import UsageError
from tocsin.server.scopes import Scope

__all__ = ["AccessControl", "Quota", "RequestRights", "TokenInfo"]

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_LOOK_EVERY = 1.0  # seconds


class Quota(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What a tenant may use; None: as much as it wants."""

    subscriptions: int | None = None
    cost_us: float | None = None  # measured microseconds of the engine per changed row
    changes_per_second: float | None = None
    bytes_per_second: float | None = None
    stored_bytes: int | None = None
    followers: int | None = None


class TokenInfo(msgspec.Struct):
    """A token as it is stored."""

    name: str
    hash: str
    scopes: list[Scope]


class Tenant(msgspec.Struct):
    """Tokens and quota of a tenant."""

    tokens: list[TokenInfo] = []
    quota: Quota = msgspec.field(default_factory=Quota)


class AccessFile(msgspec.Struct):
    """The whole file."""

    tenants: dict[str, Tenant] = {}


class RequestRights(NamedTuple):
    """What a request may do."""

    tenant: str
    scopes: frozenset[Scope]


class AccessControl:
    """The file, and who its tokens are."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "access.json"
        self._version: tuple[int, int] | None = None
        self._looked = float("-inf")
        self._file = AccessFile()
        self._grants: dict[str, RequestRights] = {}
        self._look()

    @property
    def is_open(self) -> bool:
        """Whether there are no tokens: then everybody may do everything, as the tenant `default`."""
        self._look()
        return not self._grants

    @property
    def tenants(self) -> list[str]:
        """The names of all tenants."""
        self._look()
        return sorted(self._file.tenants)

    def tenant(self, name: str) -> Tenant:
        """A tenant; one without an entry has no tokens and no quota."""
        self._look()
        return self._file.tenants.get(name) or Tenant()

    def found(self, token: str) -> RequestRights | None:
        """What a token grants."""
        self._look()
        return self._grants.get(_hash(token))

    def add_token(self, tenant: str, name: str, scopes: Iterable[Scope]) -> str:
        """A new token; it is returned here and cannot be read again."""
        self._changing(tenant)
        entry = self._file.tenants.setdefault(tenant, Tenant())
        if any(known.name == name for known in entry.tokens):
            raise UsageError(f"{tenant} has a token {name} already", hint="remove it first")
        token = "toc_" + secrets.token_urlsafe(32)
        entry.tokens.append(TokenInfo(name, _hash(token), list(scopes)))
        self._write()
        return token

    def remove_token(self, tenant: str, name: str) -> None:
        """End a token."""
        self._changing(tenant)
        entry = self._file.tenants.get(tenant) or Tenant()
        left = [known for known in entry.tokens if known.name != name]
        if len(left) == len(entry.tokens):
            raise UsageError(f"{tenant} has no token {name}", hint="tocsin tokens list shows them")
        entry.tokens = left
        self._write()

    def set_quota(self, tenant: str, quota: Quota) -> None:
        """Replace the quota of a tenant."""
        self._changing(tenant)
        self._file.tenants.setdefault(tenant, Tenant()).quota = quota
        self._write()

    # -- inside ------------------------------------------------------------------------------------

    def _changing(self, tenant: str) -> None:
        if not _NAME.fullmatch(tenant):
            raise UsageError(f"{tenant!r} names no tenant", hint="lower-case letters, digits, - and _")
        self._looked = float("-inf")
        self._look()

    def _look(self) -> None:
        """Read the file if it has changed."""
        now = monotonic()
        if now - self._looked < _LOOK_EVERY:
            return
        self._looked = now
        try:
            status = self._path.stat()
        except FileNotFoundError:
            version = None
        else:
            version = (status.st_mtime_ns, status.st_ino)
        if version != self._version:
            self._read() if version else self._use(AccessFile())
            self._version = version

    def _read(self) -> None:
        try:
            self._use(msgspec.json.decode(self._path.read_bytes(), type=AccessFile))
        except (msgspec.DecodeError, OSError) as error:
            raise UsageError(f"{self._path} cannot be read: {error}", hint="correct it") from None

    def _use(self, file: AccessFile) -> None:
        self._file = file
        self._grants = {
            token.hash: RequestRights(name, frozenset(token.scopes))
            for name, tenant in file.tenants.items()
            for token in tenant.tokens
        }

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        text = msgspec.json.format(msgspec.json.encode(self._file), indent=2)
        number = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(number, "wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, self._path)
        self._use(self._file)
        self._looked = float("-inf")


def _hash(token: str) -> str:
    return sha256(token.encode()).hexdigest()

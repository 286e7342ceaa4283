"""Tenants: each has a folder with an engine and a log of its own, and sees nothing else.

    data/access.json             tokens and quotas (`access.py`)
    data/tenants/acme/           log, snapshot, deliveries of one tenant

Ids, positions and epochs are a tenant's own, so not even numbers say anything about others. Without tokens
there is one tenant, `default`, and whoever reaches the server may do everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tocsin.server.access import AccessControl
from tocsin.server.hosted import Hosted
from tocsin.server.keeper import Settings
from tocsin.server.limits import Limits
from tocsin.server.metrics import Metrics
from tocsin.server.problems import Problem
from tocsin.server.quotas import TenantQuota
from tocsin.server.scopes import Scope

__all__ = ["Tenants", "Visit"]

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that was let in: whose engine it uses, within which quota."""

    tenant: str
    hosted: Hosted
    quota: TenantQuota
    scopes: frozenset[Scope] = field(default=frozenset(Scope))


class Tenants:
    """The engines of a folder, by tenant."""

    def __init__(self, folder: Path, limits: Limits | None = None, settings: Settings | None = None) -> None:
        self.folder, self.limits, self.metrics = folder, limits or Limits(), Metrics()
        self.access = AccessControl(folder)
        self._settings = settings or Settings()
        self._hosted: dict[str, tuple[Hosted, TenantQuota]] = {}
        there = folder / "tenants"
        known = {path.name for path in there.iterdir()} if there.is_dir() else set()
        for name in sorted(known | set(self.access.tenants) | ({DEFAULT} if self.access.is_open else set())):
            self._open(name)

    def visit(self, headers: Mapping[str, str], scope: Scope | None, token: str | None = None) -> Visit:
        """Let a request in that needs a scope; `token` is one outside the headers."""
        if self.access.is_open:
            return self._visit(DEFAULT, frozenset(Scope))
        kind, _, text = headers.get("authorization", "").partition(" ")
        given = text.strip() if kind.lower() == "bearer" else token
        grant = self.access.found(given) if given else None
        if grant is None:
            fact = "the token is not known" if given else "a token is needed"
            hint = "send Authorization: Bearer TOKEN; tocsin tokens add makes one"
            raise Problem(401, fact, hint=hint, www_authenticate="Bearer")
        if scope is not None and scope not in grant.scopes:
            has = ", ".join(sorted(grant.scopes))
            raise Problem(403, f"the token is not for {scope} (it is for {has})", hint="use another token")
        return self._visit(grant.tenant, grant.scopes)

    def __iter__(self) -> Iterator[tuple[str, Hosted]]:
        return iter([(name, hosted) for name, (hosted, _) in self._hosted.items()])

    def failed(self) -> str | None:
        """Why changes cannot be accepted."""
        for _, hosted in self:
            if hosted.core.failed is not None:
                return "the log cannot be written"
        return None

    def end_followers(self) -> None:
        """The server stops: followers receive their last message."""
        for _, hosted in self:
            hosted.hub.close()

    async def close(self) -> None:
        for _, hosted in self:
            await hosted.close()

    def _visit(self, tenant: str, scopes: frozenset[Scope]) -> Visit:
        hosted, quota = self._hosted.get(tenant) or self._open(tenant)
        quota.quota = self.access.tenant(tenant).quota
        return Visit(tenant, hosted, quota, scopes)

    def _open(self, name: str) -> tuple[Hosted, TenantQuota]:
        hosted = Hosted(name, self.folder / "tenants" / name, settings=self._settings)
        found = self._hosted[name] = hosted, TenantQuota(self.access.tenant(name).quota)
        return found

"""Tenants: each has a folder with an engine and a log of its own, and sees nothing else.

Without tokens there is one tenant, `default`, and whoever reaches the server may do everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tocsin.server.endpoints import Scope
from tocsin.server.hosted import Hosted

__all__ = ["Limits", "Tenants", "Visit"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a single request may have."""

    body: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Visit:
    """A request that was let in: whose engine it uses."""

    hosted: Hosted


class Tenants:
    """The engines of a folder, by tenant."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.folder, self.limits = folder, limits or Limits()
        self._hosted = {"default": Hosted("default", folder / "tenants" / "default")}

    def visit(self, headers: Mapping[str, str], scope: Scope | None) -> Visit:
        """Who sends a request with these headers."""
        return Visit(self._hosted["default"])

    def failed(self) -> str | None:
        """Why no changes can be accepted."""
        for hosted in self._hosted.values():
            if hosted.core.failed is not None:
                return f"the log cannot be written: {hosted.core.failed}"
        return None

    async def close(self) -> None:
        for hosted in self._hosted.values():
            await hosted.close()

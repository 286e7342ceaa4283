"""What a token allows."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Scope"]


class Scope(StrEnum):
    """One kind of request. `ADMIN` sees the metrics of all tenants."""

    DEFINE = "define"
    SUBSCRIBE = "subscribe"
    PUBLISH = "publish"
    READ = "read"
    ADMIN = "admin"

"""A subscription as a text, and what it is meant to say."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.language.algebra import Query

__all__ = ["WrittenQuery"]


@dataclass(frozen=True)
class WrittenQuery:
    """One subscription: its text and its meaning."""

    sql: str
    query: Query

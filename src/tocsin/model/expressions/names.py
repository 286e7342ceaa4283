"""The names of all functions that expressions may call, in small letters."""

from __future__ import annotations

from tocsin.model.expressions.typed import FUNCTIONS

__all__ = ["COMPUTED_NAMES", "REWRITTEN"]

REWRITTEN = frozenset(
    {
        *("nullif", "nvl", "ifnull", "nvl2", "isnull", "isnotnull", "date_part", "datepart"),
        *("datediff", "date_diff", "date_add", "dateadd", "timestampdiff", "timestampadd"),
    }
)
"""Functions that the parser writes as others."""

COMPUTED_NAMES = frozenset(name for name in FUNCTIONS if name.isidentifier()) | REWRITTEN

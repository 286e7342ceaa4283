"""Limits of a single request: bytes of a body, characters of a text, patterns in a query.

A pattern is compiled; a thousand in one query would make it slow to register and to match. They are counted
by their keywords, in texts and in templates.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tocsin.server.commands import BulkSubscribe, Subscribe, arrow_table
from tocsin.server.problems import Problem

__all__ = ["Limits", "check_sql", "check_text"]

_PATTERN = re.compile(r"\b(?:I?LIKE|RLIKE|REGEXP)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a single request may have."""

    body: int = 64 << 20
    sql: int = 64 << 10  # characters of a text
    patterns: int = 100  # LIKE, ILIKE and RLIKE in a query


def check_sql(limits: Limits, command: Subscribe | BulkSubscribe) -> None:
    """Raise if a text that a command registers is too long, or has too many patterns."""
    if isinstance(command, Subscribe):
        check_text(limits, command.sql)
        return
    if command.form == "template":
        check_text(limits, command.of)
    for name, column in zip((table := arrow_table(command.table)).column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            _check_column(limits, name, column, command.form == "texts")


def check_text(limits: Limits, sql: str) -> None:
    """Raise if a text is too long, or has too many patterns."""
    if len(sql) > limits.sql:
        raise Problem(400, f"the text has {len(sql)} characters; the limit is {limits.sql}", hint=_HINT)
    if len(sql) > limits.patterns and (count := len(_PATTERN.findall(sql))) > limits.patterns:
        raise Problem(400, f"the text has {count} patterns; the limit is {limits.patterns}", hint=_HINT)


_HINT = "divide it into several subscriptions"


def _check_column(limits: Limits, name: str, column: Any, is_sql: bool) -> None:
    lengths = pc.utf8_length(column)
    most = pc.max(lengths).as_py() or 0
    if most > limits.sql:
        raise Problem(400, f"a text of {name} has {most} characters; the limit is {limits.sql}", hint=_HINT)
    if is_sql and most > limits.patterns:
        for text in column.filter(pc.greater(lengths, limits.patterns)).to_pylist():
            check_text(limits, text)

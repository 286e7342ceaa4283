"""`tocsin explain`: why a row is, or is not, in an answer.

Definitions come from a file or the command line. The subscription is given as text, or by its number in the
file (the first SELECT is 1); without one, every subscription of the file that reads the row's table is
explained.

>>> found = explain_row({"n": 7}, ddl="CREATE STREAM hits", subscription="SELECT * FROM hits WHERE n > 5")
>>> print(found[0])
subscription 1 (filter): the row is in the answer
  yes  n > 5
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tocsin.commands.data import is_saved_engine, load_data
from tocsin.commands.output import read_text
from tocsin.commands.subscription_files import declare_streams
from tocsin.commands.validate import is_definition
from tocsin.engine import Engine
from tocsin.errors import TocsinError, UsageError
from tocsin.explain import Explanation
from tocsin.language.statements import split_statements
from tocsin.subscriptions.sources import Subscription

__all__ = ["explain_row", "read_row"]


def explain_row(
    row: dict[str, Any],
    *,
    ddl: str = "",
    text: str = "",
    subscription: str | None = None,
    data: Path | None = None,
    table: str | None = None,
) -> list[Explanation]:
    """Explain a row for one subscription, or for all in `text` (statements) that read its table."""
    engine, numbered = _engine(ddl, text, data)
    if subscription is not None:
        return [engine.explain(_chosen(engine, numbered, subscription), row, table=table)]
    if not numbered:
        raise UsageError(
            "there is no subscription to explain", hint="give one with -s 'SELECT ...', or a file with some"
        )
    found = []
    for each in numbered.values():
        try:
            found.append(engine.explain(each, row, table=table))
        except TocsinError as error:
            if "of no table of the query" not in error.fact:
                raise
    if not found:
        raise TocsinError(
            "no subscription reads a table with the row's columns", hint="name its table with --table"
        )
    return found


def read_row(text: str) -> dict[str, Any]:
    """A row from the command line: JSON, `@file`, or `-` for stdin."""
    if text == "-":
        text = sys.stdin.read()
    elif text.startswith("@"):
        text = read_text(Path(text[1:]))
    try:
        row = json.loads(text.removeprefix("\ufeff"))
    except ValueError as error:
        raise UsageError(
            f"the row is not JSON: {error}", hint="""write --row '{"name": "value"}'"""
        ) from None
    if not isinstance(row, dict):
        raise UsageError("the row is not a JSON object", hint="""write --row '{"name": "value"}'""")
    return row


def _engine(ddl: str, text: str, data: Path | None) -> tuple[Engine, dict[int, Subscription]]:
    """An engine with the definitions, the data and the numbered subscriptions."""
    saved = data is not None and is_saved_engine(data)
    engine = Engine.load(data) if data is not None and saved else Engine()
    numbered = {s.id: s for s in engine.subscriptions()}
    if ddl:
        engine.execute(ddl)
    statements = split_statements(text)
    for statement in statements:
        if is_definition(statement.text):
            engine.execute(statement.text)
    selects = [statement.text for statement in statements if not is_definition(statement.text)]
    declare_streams(engine, selects)
    if data is not None and not saved:
        load_data(engine, data)
    for text in selects:
        made = engine.subscribe(text)
        numbered[made.id] = made
    return engine, numbered


def _chosen(engine: Engine, numbered: dict[int, Subscription], wanted: str) -> Subscription:
    if not wanted.strip().isdigit():
        return engine.subscribe(wanted)
    if int(wanted) not in numbered:
        known = f"there are 1 to {len(numbered)}" if numbered else "there are none"
        raise UsageError(f"there is no subscription {wanted}", hint=known)
    return numbered[int(wanted)]

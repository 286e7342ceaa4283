"""Ids for the SELECTs of a file, so that the file can be edited between two runs.

An id keeps its meaning for life (`tocsin.spark.versions`), and a place in a file does not. So the id is

1. what a comment says: `-- id: 7` before the statement,
2. else that of the same text in the newest version on disk,
3. else new: above every id that was ever used there.

>>> first, second = split_statements("-- id: 7\\nSELECT * FROM s; SELECT a FROM s")
>>> number([first, second], taken=set(), state=None)
[(7, 'SELECT * FROM s'), (1, 'SELECT a FROM s')]
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tocsin.errors import UsageError
from tocsin.language.statements import Statement, split_statements

__all__ = ["HIGHEST", "LOWEST", "number", "split_statements"]

LOWEST, HIGHEST = -(2**62), 2**63 - 1  # ids that a subscription may have


def number(statements: Iterable[Statement], taken: set[int], state: Path | None) -> list[tuple[int, str]]:
    """The statements with their ids; `taken` are ids given elsewhere, `state` is the pipeline's folder."""
    statements = list(statements)
    said = [_said(statement) for statement in statements]
    taken = set(taken)
    for id, statement in zip(said, statements, strict=True):
        if id is not None and id in taken:
            raise UsageError(f"line {statement.line}: id {id} is given twice", hint="give another -- id:")
        taken |= {id} if id is not None else set()
    kept, used = _on_disk(state) if statements and state is not None else ({}, set())
    found: list[int | None] = []
    for id, statement in zip(said, statements, strict=True):
        same = [known for known in kept.get(statement.text, ()) if known not in taken]
        found.append(id if id is not None else next(iter(same), None))
        taken |= {found[-1]} if found[-1] is not None else set()
    free = _free(taken, used)
    return [
        (id if id is not None else next(free), statement.text)
        for id, statement in zip(found, statements, strict=True)
    ]


def _said(statement: Statement) -> int | None:
    """The id that a comment gives."""
    said = [c.strip()[3:].strip() for c in statement.comments if c.strip().startswith("id:")]
    if not said:
        return None
    if len(said) > 1 or not re.fullmatch(r"-?\d{1,19}", said[0]) or not LOWEST <= int(said[0]) <= HIGHEST:
        raise UsageError(
            f"line {statement.line}: '-- id: {' and '.join(said)}' is no id",
            hint="write one whole number, as in -- id: 7",
        )
    return int(said[0])


def _free(taken: set[int], used: set[int]) -> Iterator[int]:
    """Numbers that nobody has or had, in order."""
    start = max(used | {0}) + 1
    yield from (n for n in range(start, HIGHEST + 1) if n not in taken)
    raise UsageError(f"there is no free id above {HIGHEST}", hint="give one with a comment: -- id: 7")


def _on_disk(state: Path) -> tuple[dict[str, list[int]], set[int]]:
    """The ids by text of the newest version, and the ids of all versions."""
    folder = state / "subscriptions"
    if not folder.is_dir():  # spares a first run the import
        return {}, set()
    from tocsin.spark.versions.versions import Versions

    versions = Versions(folder)
    by_text: dict[str, list[int]] = {}
    used: set[int] = set()
    for version in versions.numbers():
        by_text = {}
        found = versions.load(version)
        used.update(found.chosen.ids.tolist())
        for row in found.table.select(["id", "sql"]).to_pylist():
            by_text.setdefault(row["sql"], []).append(row["id"])
    return by_text, used

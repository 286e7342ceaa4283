"""`tocsin validate`: check statements, and print their shapes.

A file has CREATE statements and subscriptions, separated by semicolons. Each is checked against the
definitions before it. A comment before a statement may record the expected outcome:

    -- shape: filter                       -- error: there is no column 'prise' in listings
    -- normal: listings: price <= 5        --   line 1, column 30: SELECT * FROM listings WHERE prise <= 5
    SELECT * FROM listings                 --                                                   ^^^^^
    WHERE price <= 5;                      -- hint: did you mean 'price'?

The outcome must then be the recorded one: an expected error is not a problem, and a good statement that was
expected to fail is one.

>>> report = validate("CREATE STREAM hits; SELECT * FROM hits WHERE n > 5; SELECT * FROM hit")
>>> [(o.line, o.shape, o.error.fact if o.error else None) for o in report.outcomes]
[(1, 'definition', None), (1, 'filter', None), (1, None, "there is no table or stream 'hit'")]
>>> report.ok
False
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tocsin.commands.output import error_dict
from tocsin.errors import Position, TocsinError
from tocsin.language.ddl import parse_definitions
from tocsin.language.shape import plan
from tocsin.language.sql import parse_query
from tocsin.language.statements import Statement, split_statements
from tocsin.store.database import Database

__all__ = [
    "StatementOutcome",
    "ValidationReport",
    "is_definition",
    "position_in_file",
    "reject_bad_subscriptions",
    "validate",
    "with_position",
]

RECORDED = ("shape", "normal", "warning", "error")
SHOWN = 90  # characters of a statement in a line


@dataclass(frozen=True)
class StatementOutcome:
    """The outcome of one statement, and the one recorded in its comments."""

    text: str
    line: int
    recorded: dict[str, str]
    shape: str | None = None  # `definition` for CREATE and DROP, None for an error
    normal: str | None = None
    warnings: tuple[str, ...] = ()
    error: TocsinError | None = None
    place: Position | None = None  # of the error, in the file

    @property
    def found(self) -> dict[str, str]:
        """The outcome in the form of the comments."""
        if self.error is not None:
            return {"error": _trimmed(str(self.error))}
        found = {"shape": self.shape, "normal": self.normal, "warning": next(iter(self.warnings), None)}
        return {name: text for name, text in found.items() if text is not None}

    @property
    def differences(self) -> list[str]:
        """The recorded names whose text differs from the outcome."""
        return [name for name, text in self.recorded.items() if self.found.get(name) != text]

    @property
    def ok(self) -> bool:
        return not self.differences and (self.error is None or "error" in self.recorded)

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {"line": self.line, "sql": self.text, "ok": self.ok, "shape": self.shape}
        if self.normal is not None:
            out["normal"] = self.normal
        if self.warnings:
            out["warnings"] = list(self.warnings)
        if self.error is not None:
            out["error"] = error_dict(with_position(self.error, self.place))
        if self.recorded:
            out["recorded"] = self.recorded
        return out


@dataclass(frozen=True)
class ValidationReport:
    """The outcomes of all statements of a text."""

    outcomes: tuple[StatementOutcome, ...]

    @property
    def ok(self) -> bool:
        return all(outcome.ok for outcome in self.outcomes)

    def counts(self) -> dict[str, Any]:
        """Counts of statements by outcome."""
        shapes = Counter(o.shape for o in self.outcomes if o.shape not in (None, "definition"))
        recorded = [o for o in self.outcomes if o.recorded]
        return {
            "statements": len(self.outcomes),
            "definitions": sum(o.shape == "definition" for o in self.outcomes),
            "subscriptions": dict(sorted(shapes.items())),
            "warnings": sum(len(o.warnings) for o in self.outcomes),
            "errors": sum(o.error is not None for o in self.outcomes),
            "recorded": len(recorded),
            "as_recorded": sum(not o.differences for o in recorded),
            "problems": sum(not o.ok for o in self.outcomes),
        }

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **self.counts(), "outcomes": [o.to_dict() for o in self.outcomes]}

    def lines(self, file: str, quiet: bool = False) -> Iterator[str]:
        """The printed report: a line per statement, more for an error, and a summary."""
        for outcome in self.outcomes:
            if not (quiet and outcome.ok):
                yield from _lines(outcome, file)
        yield f"{file}: {_summary(self.counts())}"


def validate(text: str) -> ValidationReport:
    """Check every statement of a text; a bad one raises nothing."""
    database = Database()
    return ValidationReport(
        tuple(_outcome(statement, text, database) for statement in split_statements(text))
    )


def reject_bad_subscriptions(ddl: str, subscriptions: Iterable[tuple[int, str, str | None]]) -> None:
    """Raise the error of the first bad subscription, with its id."""
    database = Database()
    database.define(parse_definitions(ddl), {})
    for id, text, _ in subscriptions:
        try:
            plan(parse_query(text, database.catalog), text=text)
        except TocsinError as error:
            raise TocsinError(f"subscription {id}: {error.fact}", error.position, error.hint) from None


def is_definition(text: str) -> bool:
    return text[:6].upper().startswith(("CREATE", "DROP"))


def _outcome(statement: Statement, text: str, database: Database) -> StatementOutcome:
    recorded = _recorded(statement.comments)
    try:
        if is_definition(statement.text):
            database.define(parse_definitions(statement.text), {})
            return StatementOutcome(statement.text, statement.line, recorded, "definition")
        planned = plan(parse_query(statement.text, database.catalog), text=statement.text)
    except TocsinError as error:
        place = position_in_file(error.position, statement, text)
        return StatementOutcome(statement.text, statement.line, recorded, error=error, place=place)
    return StatementOutcome(
        statement.text, statement.line, recorded, str(planned.shape), planned.normal, planned.warnings
    )


def _lines(outcome: StatementOutcome, file: str) -> Iterator[str]:
    place = outcome.place
    where = f"{file}:{outcome.line}" if place is None else f"{file}:{place.line}:{place.column}"
    text = " ".join(outcome.text.split())
    if outcome.error is not None and outcome.ok:
        yield f"{where}: rejected, as recorded: {outcome.error.fact}"
    elif outcome.error is not None:
        yield f"{where}: error: {with_position(outcome.error, place)}"
    else:
        yield f"{where}: {outcome.shape}: {text if len(text) <= SHOWN else text[: SHOWN - 3] + '...'}"
    for warning in outcome.warnings:
        yield f"    warning: {warning}"
    for name in outcome.differences:
        yield f"    recorded {name}: {outcome.recorded[name]}"
        yield f"    found    {name}: {outcome.found.get(name, 'none')}"


def with_position(error: TocsinError, place: Position | None) -> TocsinError:
    """An error with its position in the file instead of the statement."""
    return error if place is None else TocsinError(error.fact, place, error.hint)


def _summary(counts: dict[str, Any]) -> str:
    shapes = counts["subscriptions"]
    parts = [f"{_count(counts['definitions'], 'definition')}, {_count(sum(shapes.values()), 'subscription')}"]
    if shapes:
        parts[0] += f" ({', '.join(f'{count} {shape}' for shape, count in shapes.items())})"
    if counts["warnings"]:
        parts.append(_count(counts["warnings"], "warning"))
    if counts["errors"]:
        parts.append(f"{counts['errors']} rejected")
    if counts["recorded"]:
        parts.append(f"{counts['as_recorded']} of {counts['recorded']} recorded outcomes matched")
    parts.append(_count(counts["problems"], "problem") if counts["problems"] else "no problem")
    return "; ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _recorded(comments: tuple[str, ...]) -> dict[str, str]:
    """The outcome recorded in comments; the lines after `error:` belong to the message."""
    found: dict[str, str] = {}
    for comment in comments:
        name, colon, rest = comment.partition(": ")
        if "error" in found:
            found["error"] += "\n" + comment
        elif colon and name in RECORDED:
            found[name] = rest
    return {name: _trimmed(text) for name, text in found.items()}


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines())


def position_in_file(place: Position | None, statement: Statement, text: str) -> Position | None:
    """A position in a statement as a position in its file."""
    if place is None or place.text != statement.text:
        return None
    lines = text.splitlines(keepends=True)
    start = text.index(statement.text, sum(map(len, lines[: statement.line - 1])))
    return Position(text, start + place.start, start + place.end)

"""One example of a property test; its repr is a script that repeats it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.strategies.changes import Change, Model, Row, Step, bad_change, event, steps
from tests.strategies.pick import Pick, picked
from tests.strategies.queries import SHAPES, Asked, asked, stream_filter
from tests.strategies.schemas import open_stream, stream, tables
from tests.strategies.values import Values
from tocsin.model.schema import Stream, Table

__all__ = ["BadCase", "Case", "StreamCase", "bad_cases", "cases", "script", "stream_cases"]


@dataclass(frozen=True, repr=False)
class Case:
    """Tables, subscriptions, and steps; subscription i lives from step `at[i]` until `until[i]`."""

    tables: tuple[Table, ...]
    asked: tuple[Asked, ...]
    at: tuple[int, ...]
    until: tuple[int | None, ...]
    steps: tuple[Step, ...]

    def __repr__(self) -> str:
        return script(self)


@dataclass(frozen=True)
class BadCase:
    """A case, and a step that must fail at its row `row`, to be tried before step `before`."""

    case: Case
    before: int
    row: int
    step: Step


@dataclass(frozen=True, repr=False)
class StreamCase:
    """A stream, filters over it, and its events in batches."""

    stream: Stream
    asked: tuple[Asked, ...]
    batches: tuple[tuple[Row, ...], ...]

    def __repr__(self) -> str:
        lines = [
            "import datetime",
            "from tocsin.engine import Engine",
            "nan, inf = float('nan'), float('inf')",
        ]
        lines += ["e = Engine()", f"e.execute({str(self.stream)!r})"]
        lines += [f"e.subscribe({one.sql!r})" for one in self.asked]
        lines += [f"e.publish({self.stream.name!r}, {row!r})" for batch in self.batches for row in batch]
        return "\n".join(["", *lines, ""])


_TABLES = {"join": (1, 2), "band": (1, 2), "multiway": (1, 3), "any": (1, 3)}
_POOLS = {"join": 3, "band": 3, "multiway": 2}  # few values, so that rows of several tables meet


def _case(pick: Pick, shape: str, *, edges: bool = False) -> Case:
    """Subscriptions of one shape, or of any."""
    overflows = not edges and shape in ("aggregate", "any")  # sums of the greatest BIGINT
    values = Values(pick, _POOLS.get(shape, 4), edges=not overflows)
    made = tables(pick, *_TABLES.get(shape, (1, 1)))
    count = pick.between(1, 4) if shape == "any" else pick.between(1, 3)
    shapes = [pick.one(tuple(SHAPES)) if shape == "any" else shape for _ in range(count)]
    wanted = tuple(asked(pick, one, made, values) for one in shapes)
    drawn = steps(pick, made, values, 3, 10)
    at = tuple(pick.between(0, len(drawn)) if pick.chance(50) else 0 for _ in wanted)
    until = tuple(pick.between(i, len(drawn)) if pick.chance(10) else None for i in at)
    return Case(made, wanted, at, until, drawn)


def _bad_case(pick: Pick) -> BadCase:
    """A case, and a batch that must fail at the given row just before one of its steps."""
    case = _case(pick, "any")
    before = pick.between(0, len(case.steps) - 1)
    model = Model(case.tables)
    for step in case.steps[:before]:
        for change in step.changes:
            model.apply(step.table, change)
    step = case.steps[before]
    row = pick.between(0, len(step.changes))
    for change in step.changes[:row]:
        model.apply(step.table, change)
    names = tuple(name for name in step.changes[0].row if name not in step.table.key)
    bad = bad_change(pick, model, step.table, Values(pick), names)
    changes = (*step.changes[:row], bad, *step.changes[row:])
    return BadCase(case, before, row, Step(step.table, changes, batch=True, net=pick.chance(30)))


def _stream_case(pick: Pick) -> StreamCase:
    values = Values(pick, edges=True)
    source = open_stream() if pick.chance(50) else stream(pick)
    wanted = tuple(stream_filter(pick, source, values) for _ in range(pick.between(1, 4)))
    batches = tuple(
        tuple(event(pick, source, values) for _ in range(pick.between(1, 4)))
        for _ in range(pick.between(1, 4))
    )
    return StreamCase(source, wanted, batches)


cases = picked(_case)
bad_cases = picked(_bad_case)
stream_cases = picked(_stream_case)


def script(case: Case) -> str:
    """The case as a program against the engine."""
    lines = ["import math, datetime", "from tests.strategies.changes import to_arrow"]
    lines += ["from tocsin.engine import Engine", "nan, inf = math.nan, math.inf", "e = Engine()"]
    lines += [f"e.execute({str(table)!r})" for table in case.tables]
    for i in range(len(case.steps) + 1):
        for n, (one, at, until) in enumerate(zip(case.asked, case.at, case.until, strict=True)):
            lines += [f"s{n} = e.subscribe({one.sql!r})"] if at == i else []
            lines += [f"e.unsubscribe(s{n})"] if until == i else []
        lines += [_call(case.steps[i])] if i < len(case.steps) else []
    lines += [f"print(e.content(s{n}))" for n, until in enumerate(case.until) if until is None]
    return "\n".join(["", *lines, ""])


def _call(step: Step) -> str:
    name = step.table.name
    if not step.batch:
        [change] = step.changes
        return f"e.{change.op}({name!r}, {change.row!r})"
    rows, ops = _columns(step.changes)
    net = ", net=True" if step.net else ""
    return f"e.apply({name!r}, to_arrow(e.schema({name!r}), {rows!r}, {ops!r}){net})"


def _columns(changes: Sequence[Change]) -> tuple[list[dict[str, Any]], list[str]]:
    return [change.row for change in changes], [change.op for change in changes]

"""One example of a property test; its repr is a script that repeats it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.strategies.changes import Model, Row, Step, bad_change, event, steps
from tests.strategies.pick import Pick, picked
from tests.strategies.queries import COMPOSED, SHAPES, WrittenQuery, stream_filter, write_query
from tests.strategies.schemas import open_stream, stream, tables
from tests.strategies.values import CENTS, TYPES, Values
from tocsin.model.schema import Stream, Table, Type

__all__ = ["BadCase", "Case", "StreamCase", "bad_cases", "cases", "stream_cases"]


class Scripted:
    """Shown, in a failure too, as a program against the engine."""

    def lines(self) -> list[str]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(["", *_HEAD, *self.lines(), ""])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


_HEAD = (
    "import datetime",
    "from tests.strategies.changes import to_arrow",
    "from tocsin.engine import Engine",
    "nan, inf = float('nan'), float('inf')",
    "e = Engine()",
)


@dataclass(frozen=True, repr=False)
class Case(Scripted):
    """Tables, subscriptions, and steps; subscription i lives from step `at[i]` until `until[i]`."""

    tables: tuple[Table, ...]
    written: tuple[WrittenQuery, ...]
    at: tuple[int, ...]
    until: tuple[int | None, ...]
    steps: tuple[Step, ...]

    def lines(self) -> list[str]:
        out = [f"e.execute({str(table)!r})" for table in self.tables]
        for i in range(len(self.steps) + 1):
            for n, (one, at, until) in enumerate(zip(self.written, self.at, self.until, strict=True)):
                out += [f"s{n} = e.subscribe({one.sql!r})"] if at == i else []
                out += [f"e.unsubscribe(s{n})"] if until == i else []
            out += [_call(self.steps[i])] if i < len(self.steps) else []
        return out + [f"print(e.content(s{n}))" for n, until in enumerate(self.until) if until is None]


@dataclass(frozen=True, repr=False)
class BadCase(Scripted):
    """A case, and a step that must fail at its row `row`, to be tried before step `before`."""

    case: Case
    before: int
    row: int
    step: Step

    def lines(self) -> list[str]:
        return [*self.case.lines(), f"# before step {self.before}, at row {self.row}:", _call(self.step)]


@dataclass(frozen=True, repr=False)
class StreamCase(Scripted):
    """A stream, filters over it, and its events in batches."""

    stream: Stream
    written: tuple[WrittenQuery, ...]
    batches: tuple[tuple[Row, ...], ...]

    def lines(self) -> list[str]:
        out = [f"e.execute({str(self.stream)!r})", *(f"e.subscribe({one.sql!r})" for one in self.written)]
        events = [event for batch in self.batches for event in batch]
        return out + [f"print(list(e.publish({self.stream.name!r}, {event!r})))" for event in events]


def _call(step: Step) -> str:
    name, rows = step.table.name, [change.row for change in step.changes]
    if not step.batch:
        return f"print(list(e.{step.changes[0].op}({name!r}, {rows[0]!r})))"
    ops, net = [change.op for change in step.changes], ", net=True" if step.net else ""
    return f"print(list(e.apply({name!r}, to_arrow(e.schema({name!r}), {rows!r}, {ops!r}){net})))"


# -- drawing ---------------------------------------------------------------------------------------

_TABLES = {"join": (1, 2), "band": (1, 2), "multiway": (1, 3), "any": (1, 3)}
_TABLES |= dict.fromkeys(("group", "ranked", "joined aggregate", "joined distinct", "joined topk"), (1, 2))
_TABLES |= dict.fromkeys(COMPOSED, (1, 2))
_NUMBERS = (Type.BIGINT, Type.DOUBLE, CENTS)
_COMMON = {  # the types that each table has columns of
    "filter": (*TYPES, Type.STRING),
    "join": (*_NUMBERS, *TYPES),
    "band": (Type.BIGINT, Type.DOUBLE, Type.DATE, Type.TIMESTAMP),
    "aggregate": (*_NUMBERS, *TYPES),
    "group": (*_NUMBERS, *TYPES),
    **dict.fromkeys(COMPOSED, (*_NUMBERS, *TYPES)),
}
_POOLS = {
    "join": 3,
    "band": 3,
    "multiway": 2,
    "group": 3,
    "ranked": 3,
    **dict.fromkeys(COMPOSED, 3),
}  # few values, so that rows of several tables meet


def _case(pick: Pick, shape: str, *, edges: bool = False) -> Case:
    """Subscriptions of one shape, or of any."""
    overflows = not edges and shape in (
        "aggregate",
        "group",
        "joined aggregate",
        "any",
    )  # sums of the greatest BIGINT
    values = Values(pick, _POOLS.get(shape, 4), edges=not overflows)
    made = tables(pick, *_TABLES.get(shape, (1, 1)), _COMMON.get(shape, TYPES))
    count = pick.between(1, 3 if shape in _POOLS else 5)
    shapes = [pick.one((*SHAPES, *COMPOSED)) if shape == "any" else shape for _ in range(count)]
    wanted = tuple(write_query(pick, one, made, values) for one in shapes)
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
    wanted = tuple(stream_filter(pick, source, values) for _ in range(pick.between(1, 6)))
    sizes = [pick.between(1, 4) for _ in range(pick.between(1, 4))]
    batches = tuple(tuple(event(pick, source, values) for _ in range(size)) for size in sizes)
    return StreamCase(source, wanted, batches)


cases = picked(_case)
bad_cases = picked(_bad_case)
stream_cases = picked(_stream_case)

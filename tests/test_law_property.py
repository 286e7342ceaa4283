"""The law, for every shape: after every change, content is the query over the tables.

Each example is a few tables, subscriptions and changes (`tests/strategies`); a `Witness` runs it
on an engine, a client and a plain model side by side and compares them after every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

from tests.strategies.cases import BadCase, Case, StreamCase, bad_cases, cases, stream_cases
from tests.strategies.changes import Change, Model, Row, to_arrow, to_open_arrow
from tests.strategies.queries import COMPOSED, SHAPES
from tests.strategies.witness import Witness
from tocsin.engine import Engine
from tocsin.errors import ChangeError
from tocsin.language.sql import parse_query
from tocsin.model.delta import Delta
from tocsin.model.schema import Table
from tocsin.reference import as_bag, evaluate, row_key


def run(case: Case, before: int | None = None) -> Witness:
    """Run a case, to the end or up to a step, and check it all the way."""
    witness = Witness(case.tables)
    alive: dict[int, int] = {}
    for i, step in enumerate([*case.steps, None]):
        for n, written in enumerate(case.written):
            if case.at[n] == i:
                alive[n] = witness.subscribe(written)
            if case.until[n] == i:
                witness.unsubscribe(alive.pop(n))
        if i == before:
            break
        if step is not None:
            witness.step(step)
    witness.engine._check()
    return witness


# -- tables ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [*SHAPES, *COMPOSED])
def test_the_law_holds(shape: str) -> None:
    @settings(max_examples=max(50, settings().max_examples))
    @given(cases(shape))
    def check(case: Case) -> None:
        run(case)

    check()


@given(cases("any"))
def test_the_law_holds_for_shapes_together(case: Case) -> None:
    run(case)


def stored(witness: Witness, case: Case) -> list[Any]:
    """The rows of the engine's tables, with NaN equal to NaN."""
    return [as_bag(witness.engine.rows(table.name).to_pylist()) for table in case.tables]


@given(bad_cases())
def test_a_bad_row_fails_its_batch_and_changes_nothing(bad: BadCase) -> None:
    witness = run(bad.case, before=bad.before)
    before = stored(witness, bad.case)
    with pytest.raises(ChangeError) as error:
        witness.send(bad.step)
    assert error.value.row == bad.row
    assert stored(witness, bad.case) == before
    witness.check()
    for step in bad.case.steps[bad.before :]:  # as if it had never been tried
        witness.step(step)


@given(cases("aggregate", edges=True))
def test_a_sum_that_overflows_fails_its_change_and_changes_nothing(case: Case) -> None:
    witness = Witness(case.tables)
    for written in case.written:
        witness.subscribe(written)
    for step in case.steps:
        if not witness.step_or_overflow(step):
            break


@given(cases("any"))
def test_batches_of_several_tables_go_by_their_seq(case: Case) -> None:
    witness = Witness(case.tables)
    for written in case.written:
        witness.subscribe(written)
    for i in range(0, len(case.steps), 3):
        changes = [(step.table, change) for step in case.steps[i : i + 3] for change in step.changes]
        changes = filled(changes)
        seqs = range(witness.engine.last_seq + 1, witness.engine.last_seq + 1 + len(changes))
        batches = {}
        for table in case.tables:
            mine = [(seq, c) for seq, (changed, c) in zip(seqs, changes, strict=True) if changed is table]
            batch = to_arrow(table, [c.row for _, c in mine], [c.op for _, c in mine])
            batches[table.name] = batch.append_column("_seq", pa.array([seq for seq, _ in mine], pa.int64()))
        deltas = witness.engine.apply_all({name: batch for name, batch in batches.items() if len(batch)})
        witness.compare(changes, list(deltas))


def filled(changes: Sequence[tuple[Table, Change]]) -> list[tuple[Table, Change]]:
    """The changes, each with all columns that one of its table has: a column of a batch is in every row."""
    names = {table.name: [n for t, c in changes if t is table for n in c.row] for table, _ in changes}
    return [(t, Change(c.op, {**dict.fromkeys(names[t.name]), **c.row})) for t, c in changes]


@settings(max_examples=max(50, settings().max_examples))
@given(cases("any"))
def test_a_saved_engine_goes_on_as_if_it_had_never_stopped(case: Case) -> None:
    half = len(case.steps) // 2
    witness = run(case, before=half)
    with TemporaryDirectory() as folder:
        witness.engine.save(Path(folder) / "saved")
        witness.engine = Engine.load(Path(folder) / "saved")
    witness.check()
    for step in case.steps[half:]:
        witness.step(step)


# -- streams ---------------------------------------------------------------------------------------


def expected(case: StreamCase, events: Sequence[Row]) -> list[list[Any]]:
    """For each event, which subscriptions (by place) get which row."""
    database = [{case.stream.name: [event]} for event in events]
    return [
        [(i, row_key(row)) for i, one in enumerate(case.written) for row in evaluate(one.query, only, {})]
        for only in database
    ]


def found(deltas: Sequence[Delta], ids: Sequence[int], seqs: Sequence[int]) -> list[list[Any]]:
    """The same from deltas, and all of them are +1."""
    assert all(delta.sign == 1 for delta in deltas)
    assert {delta.seq for delta in deltas} <= set(seqs)
    return [
        sorted((ids.index(d.subscription), row_key(d.row)) for d in deltas if d.seq == seq) for seq in seqs
    ]


def listening(case: StreamCase) -> tuple[Engine, list[int]]:
    engine = Engine()
    engine.execute(str(case.stream))
    return engine, [engine.subscribe(one.sql).id for one in case.written]


@given(stream_cases())
def test_each_event_is_delivered_once_to_each_match(case: StreamCase) -> None:
    engine, ids = listening(case)
    for event in (event for batch in case.batches for event in batch):
        deltas = list(engine.publish(case.stream.name, event))
        assert found(deltas, ids, [engine.last_seq]) == expected(case, [event])
    assert all(engine.content(key) == [] for key in ids)


@given(stream_cases())
def test_a_batch_of_events_is_delivered_like_single_ones(case: StreamCase) -> None:
    engine, ids = listening(case)
    for events in case.batches:
        if case.stream.open:  # as two maps: of numbers, all double, and of texts
            numbers = [{k: float(v) if type(v) is int else v for k, v in event.items()} for event in events]
            events = tuple({k: v for k, v in e.items() if isinstance(v, float | str)} for e in numbers)
            deltas = engine.apply(case.stream.name, to_open_arrow(events))
        else:
            deltas = engine.apply(case.stream.name, to_arrow(case.stream, events))
        seqs = range(engine.last_seq - len(events) + 1, engine.last_seq + 1)
        assert found(list(deltas), ids, seqs) == expected(case, events)


# -- the language ----------------------------------------------------------------------------------


@given(cases("any"))
def test_the_parser_reads_what_is_meant_and_prints_what_it_reads(case: Case) -> None:
    """The same answer from the text as from the query it was written for; and from the printed query."""
    catalog, model = {table.name: table for table in case.tables}, Model(case.tables)
    for step in case.steps:
        for change in step.changes:
            model.apply(step.table, change)
    for one in case.written:
        query = parse_query(one.sql, catalog)
        assert repr(parse_query(str(query), catalog)) == repr(query)  # by repr: NaN is not NaN
        meant = evaluate(one.query, model.database(), model.keys)
        assert as_bag(evaluate(query, model.database(), model.keys)) == as_bag(meant)

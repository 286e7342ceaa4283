"""A client that receives only deltas has the engine's contents, whenever it looks.

`test_law_property` checks a client that starts with the content and receives what each call
returns. Here it listens (`on_delta`) and starts with nothing: subscriptions begin and end by the
clock, and their contents are emitted as deltas too.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given

from tests.strategies.cases import Case, cases
from tests.strategies.changes import Model, to_arrow
from tocsin.client import Client
from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.model.delta import Delta
from tocsin.reference import as_bag, evaluate

START = datetime(2013, 1, 1, tzinfo=UTC)


@given(cases("any"))
def test_a_listening_client_has_the_contents_of_valid_subscriptions(case: Case) -> None:
    """Subscription i is valid from hour `at[i]` until hour `until[i]`; step n happens at hour n."""
    now = START
    engine, client, model = Engine(clock=lambda: now), Client(), Model(case.tables)
    for table in case.tables:
        engine.execute(str(table))
    engine.on_delta(client.receive)
    validity = {}
    for written, at, until in zip(case.written, case.at, case.until, strict=True):
        begins = START + timedelta(hours=at + 0.5)
        ends = None if until is None else START + timedelta(hours=until + 0.75)
        subscription = engine.subscribe(written.sql, valid_from=begins, valid_to=ends)
        client.start(subscription)
        validity[subscription.id] = (written.query, begins, ends)
    for hour, step in enumerate([*case.steps, None], start=1):
        now = START + timedelta(hours=hour)
        if step is None:
            engine.tick()
        else:
            rows, ops = [c.row for c in step.changes], [c.op for c in step.changes]
            if step.batch:
                engine.apply(step.table.name, to_arrow(step.table, rows, ops), net=step.net)
            else:
                getattr(engine, ops[0])(step.table.name, rows[0])
            for change in step.changes:
                model.apply(step.table, change)
        for key, (query, begins, ends) in validity.items():
            is_valid = begins <= now and (ends is None or now < ends)
            expected = evaluate(query, model.database(), model.keys) if is_valid else []
            assert as_bag(client.content(key)) == as_bag(expected), query
            assert as_bag(engine.content(key)) == as_bag(expected), query


def test_a_client_counts_equal_rows_and_nan_is_equal_to_nan() -> None:
    client = Client()
    client.start(1, [{"x": float("nan")}, {"x": float("nan")}])
    client.receive([Delta(1, 1, -1, {"x": float("nan")})])
    assert as_bag(client.content(1)) == as_bag([{"x": float("nan")}])
    assert client.last_seq == 1


def test_a_row_that_goes_but_is_not_there_is_an_error() -> None:
    client = Client()
    client.start(1, [{"x": 1}])
    with pytest.raises(TocsinError, match=r"seq 3: subscription 1 does not hold the row"):
        client.receive([Delta(3, 1, -1, {"x": True})])  # TRUE is not 1


def test_deltas_of_others_are_passed_over() -> None:
    client = Client()
    client.start(1)
    client.receive([Delta(1, 2, -1, {"x": 1}), Delta(2, 1, 1, {"x": 1})])
    assert client.content(1) == [{"x": 1}]
    client.stop(1)
    client.receive([Delta(3, 1, -1, {"x": 9})])

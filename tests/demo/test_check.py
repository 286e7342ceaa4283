"""The check of the demo finds what is wrong, and only that."""

from __future__ import annotations

import json

import pytest

from tests.demo.embedded import embedded
from tocsin.demo.check import check_sample, checksum, expected, final_tables, receive
from tocsin.demo.script import Script
from tocsin.demo.words import choose, moments, tell
from tocsin.model.delta import Delta
from tocsin.reference import as_bag, evaluate

SCRIPT = Script(days=1, subscriptions=45)


@pytest.fixture(scope="module")
def ran():
    return embedded(SCRIPT)


def test_contents_from_deltas_are_those_of_the_reference(ran):
    client = receive(ran.queries, ran.deltas)
    rows = final_tables(ran.changes, ran.engine.schemas())
    checked = check_sample(client, ran.queries, ran.labels, rows, ran.keys, each=5, seed=0)
    assert checked.wrong == ()
    assert checked.total >= 9


def test_a_changed_content_is_found(ran):
    number = next(i for i, label in ran.labels.items() if label == "aggregate")
    wrong = [Delta(9999, number, 1, {"late": 77})]
    client = receive(ran.queries, [*ran.deltas, *wrong])
    rows = final_tables(ran.changes, ran.engine.schemas())
    checked = check_sample(client, ran.queries, ran.labels, rows, ran.keys, each=100, seed=0)
    assert checked.wrong == (number,)
    assert checksum(client, ran.queries) != checksum(receive(ran.queries, ran.deltas), ran.queries)


def test_leaving_out_rows_that_fail_changes_no_answer(ran):
    rows = final_tables(ran.changes, ran.engine.schemas())
    few = {name: held[:60] for name, held in rows.items()}
    for query in ran.queries.values():
        plain = [
            json.loads(json.dumps(r, default=lambda v: v.isoformat())) for r in evaluate(query, few, ran.keys)
        ]
        assert as_bag(expected(query, few, ran.keys)) == as_bag(plain)


@pytest.mark.parametrize("seed", range(4))
def test_every_shape_is_told_in_words(ran, seed):
    order = ("filter", "stream", "join", "band", "multiway", "extreme", "aggregate", "distinct", "topk")
    events = choose(ran.deltas, ran.labels, order, seed)
    around = moments(ran.changes, ran.keys, {event.seq for event in events})
    assert len(events) >= 6
    for event in events:
        told = tell(event, ran.queries[event.subscription], "ann", around[event.seq])
        assert "ann is told" in told
        assert ", because " in told

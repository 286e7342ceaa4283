"""The check of the demo finds what is wrong, and only that."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest

from tests.lab.demo.embedded import embedded
from tocsin.engine import Engine
from tocsin.lab.demo.check import SortedTables, check, draw_sample, expected, final_tables
from tocsin.lab.demo.flights import DDL
from tocsin.lab.demo.received import Received
from tocsin.lab.demo.script import Script, draw_subscriptions
from tocsin.lab.demo.sentences import as_sentence, change_contexts, choose_notifications
from tocsin.model.json_rows import row_json
from tocsin.reference import as_bag, evaluate

SCRIPT = Script(days=1, subscriptions=45)


@pytest.fixture(scope="module")
def ran():
    return embedded(SCRIPT)


def sampled(ran, contents, each):
    queries = {n: ran.queries[n] for n in draw_sample(ran.labels, each=each, seed=0)}
    return check(contents, queries, final_tables(ran.changes, ran.engine.schemas()), ran.keys)


def test_contents_from_deltas_are_those_of_the_reference(ran):
    checked = sampled(ran, Received.of(ran.tables).contents(), 5)
    assert checked.wrong == ()
    assert checked.total >= 9


def test_a_sample_has_every_shape(ran):
    for each in (1, 2):
        drawn = Counter(ran.labels[n] for n in draw_sample(ran.labels, each=each, seed=0))
        assert drawn == {shape: min(each, n) for shape, n in Counter(ran.labels.values()).items()}


def test_a_changed_content_is_found(ran):
    number = next(i for i, label in ran.labels.items() if label == "aggregate")
    wrong = pa.table({"seq": [9999], "subscription": [number], "sign": [1], "row": ['{"late":77}']})
    contents = Received.of([*ran.tables, wrong]).contents()
    assert sampled(ran, contents, 100).wrong == (number,)
    assert contents.checksum(ran.queries) != Received.of(ran.tables).contents().checksum(ran.queries)


@pytest.mark.parametrize("days", [2, 3])  # broad questions, and narrow ones
def test_leaving_out_rows_that_fail_changes_no_answer(ran, days):
    rows = final_tables(ran.changes, ran.engine.schemas())
    few = {name: held[-120:] for name, held in rows.items()}
    engine, telling = Engine(), Counter()
    engine.execute(DDL)
    for wanted in draw_subscriptions(150, 7, days):
        query = engine.query(engine.subscribe(wanted.sql))
        plain = [json.loads(row_json(row)) for row in evaluate(query, few, ran.keys)]
        assert as_bag(expected(query, SortedTables(few), ran.keys)) == as_bag(plain)
        telling[wanted.shape] += bool(plain)
    assert telling["filter"] > 0
    assert telling["join"] > 0


@pytest.mark.parametrize("seed", range(4))
def test_every_shape_is_reported_in_words(ran, seed):
    order = ("filter", "stream", "join", "band", "multiway", "extreme", "aggregate", "distinct", "topk")
    events = choose_notifications(Received.of(ran.tables), ran.labels, order, seed)
    contexts = change_contexts(ran.changes, ran.keys, {event.seq for event in events})
    assert len(events) >= 6
    for event in events:
        sentence = as_sentence(event, ran.queries[event.subscription], "ann", contexts[event.seq])
        assert "ann receives" in sentence
        assert ", because " in sentence

"""Contents by columns are those that a client keeps delta by delta."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lab.demo.embedded import embedded
from tocsin.client import Client
from tocsin.errors import TocsinError
from tocsin.lab.demo.received import COLUMNS, Received
from tocsin.lab.demo.script import Script
from tocsin.model.delta import Delta
from tocsin.reference import as_bag

DRAWN = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from([1, 1, -1]), st.integers(0, 2)), min_size=1, max_size=12
)


def table(deltas):
    return pa.table(dict(zip(COLUMNS, map(list, zip(*deltas, strict=True)), strict=True)))


@given(DRAWN, st.integers(1, 4))
def test_contents_are_those_of_a_client(drawn, size):
    deltas = [(seq, who, sign, json.dumps({"x": x})) for seq, (who, sign, x) in enumerate(drawn, start=1)]
    received = Received.of([table(deltas[i : i + size]) for i in range(0, len(deltas), size)])
    client = Client()
    for who in range(1, 4):
        client.start(who)
    rejected = None
    try:
        client.receive(Delta(seq, who, sign, json.loads(row)) for seq, who, sign, row in deltas)
    except TocsinError as error:
        rejected = error.fact
    if rejected is not None:
        with pytest.raises(TocsinError, match=re.escape(rejected)):
            received.contents()
        return
    contents = received.contents()
    for who in range(1, 4):
        assert as_bag(contents.content(who)) == as_bag(client.content(who))


def test_the_checksum_does_not_depend_on_how_changes_were_cut():
    script = Script(days=1, subscriptions=60, seed=3)
    sums = set()
    for size in (300, 20_000):
        ran = embedded(script, size)
        sums.add(Received.of(ran.tables).contents().checksum(ran.queries))
    assert len(sums) == 1


def test_the_checksum_knows_who_holds_what_and_how_often():
    def checksum(*deltas, ids=(1, 2)):
        return Received.of([table(deltas)]).contents().checksum(ids)

    one = (1, 1, 1, '{"a":1,"b":2}')
    assert checksum(one) == checksum((5, 1, 1, '{"b":2,"a":1}'))
    others = [
        checksum((1, 2, 1, one[3])),
        checksum((1, 1, 1, '{"a":1,"b":3}')),
        checksum(one, (2, *one[1:])),
        checksum(one, ids=(1, 2, 3)),
    ]
    assert len({checksum(one), *others}) == 5


def test_one_row_in_two_texts_counts_twice():
    twice = Received.of([table([(1, 1, 1, '{"a":1,"b":2}'), (2, 1, 1, '{"b":2,"a":1}')])])
    same = Received.of([table([(1, 1, 1, '{"a":1,"b":2}'), (2, 1, 1, '{"a":1,"b":2}')])])
    assert twice.contents().checksum([1]) == same.contents().checksum([1])


def test_nothing_has_a_checksum():
    assert Received.of([]).contents().checksum([1]) != Received.of([]).contents().checksum([1, 2])

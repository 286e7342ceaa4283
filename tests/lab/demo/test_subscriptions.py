"""The drawn subscriptions: all valid, all shapes, the same for a seed."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime

import pytest

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.lab.demo.flights import DDL
from tocsin.lab.demo.script import BROAD_COUNT, MIX, draw_subscriptions
from tocsin.language.shape import Shape

DRAWN = {
    *(Shape.FILTER, Shape.JOIN, Shape.BAND, Shape.MULTIWAY),
    *(Shape.EXTREME, Shape.AGGREGATE, Shape.DISTINCT, Shape.TOPK),
}
"""The shapes of the demo's subscriptions."""


@pytest.mark.parametrize("days", [2, 30])
def test_all_are_taken_without_a_warning_and_have_the_shape_they_say(days):
    engine = Engine()
    engine.execute(DDL)
    shapes = Counter()
    for wanted in draw_subscriptions(600, 5, days):
        made = engine.subscribe(wanted.sql, id=wanted.id, subscriber=wanted.subscriber)
        assert made.warnings == ()
        streamed = made.shape == Shape.FILTER and engine.query(made).tables[0].name == "notices"
        assert wanted.shape == ("stream" if streamed else str(made.shape))
        shapes[made.shape] += 1
    assert set(shapes) == DRAWN


def test_few_still_have_every_kind():
    engine = Engine()
    engine.execute(DDL)
    assert {engine.subscribe(w.sql).shape for w in draw_subscriptions(len(MIX), seed=1)} == DRAWN
    with pytest.raises(TocsinError, match="at least 9"):
        draw_subscriptions(8, seed=1)


def test_a_seed_draws_the_same():
    assert draw_subscriptions(40, seed=2) == draw_subscriptions(40, seed=2)
    assert draw_subscriptions(40, seed=2) != draw_subscriptions(40, seed=3)


def test_many_ask_narrow_questions_and_few_of_two_days_broad_ones():
    def ways(*arguments):
        return {re.sub(r"'[^']*'|[0-9.]+", "?", w.sql) for w in draw_subscriptions(*arguments)}

    broad, month, many = ways(500, 1, 2), ways(500, 1, 30), ways(BROAD_COUNT + 1, 1, 2)
    assert ways(500, 1, 1) == broad
    assert broad - month
    assert month - broad
    assert month <= many


def test_questions_about_a_month_are_about_all_of_it():
    texts = [w.sql for w in draw_subscriptions(2000, 1, 30)]
    days = {day for text in texts for day in re.findall(r"BETWEEN TIMESTAMP '(\S+) ", text)}
    assert len(days) == 30
    assert min(days) == "2013-03-08"


def test_narrow_questions_that_are_ranked_or_counted_share_structures():
    """None is scanned, which would evaluate each of them for every change."""
    engine = Engine()
    engine.execute(DDL)
    wanted = draw_subscriptions(6000, 3, 30)
    engine.subscribe_texts([w.sql for w in wanted], ids=[w.id for w in wanted])
    engine.insert(
        "weather", {"origin": "JFK", "time_hour": datetime(2013, 3, 8, 12, tzinfo=UTC), "temp": 30.0}
    )
    ranked = engine.stats()["rank"]
    assert ranked["subscriptions"] > 1500
    assert ranked["scanned"] == 0
    assert len(ranked["families"]) < 64

"""The drawn subscriptions: all taken, all shapes, the same for a seed."""

from __future__ import annotations

from collections import Counter

import pytest

from tocsin.demo.flights import DDL
from tocsin.demo.subscriptions import MIX, draw_subscriptions
from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.language.shape import Shape


def test_all_are_taken_without_a_warning_and_have_every_shape():
    engine = Engine()
    engine.execute(DDL)
    shapes = Counter()
    for wanted in draw_subscriptions(600, seed=5):
        made = engine.subscribe(wanted.sql, id=wanted.id, subscriber=wanted.subscriber)
        assert made.warnings == ()
        shapes[made.shape] += 1
    assert set(shapes) == set(Shape)


def test_few_still_have_every_kind():
    engine = Engine()
    engine.execute(DDL)
    assert {engine.subscribe(w.sql).shape for w in draw_subscriptions(len(MIX), seed=1)} == set(Shape)
    with pytest.raises(TocsinError, match="at least 9"):
        draw_subscriptions(8, seed=1)


def test_a_seed_draws_the_same():
    assert draw_subscriptions(40, seed=2) == draw_subscriptions(40, seed=2)
    assert draw_subscriptions(40, seed=2) != draw_subscriptions(40, seed=3)

"""Every join and rank implementation keeps the law, as the engine's room for its shapes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from tests.strategies.cases import Case, cases
from tests.strategies.witness import Witness
from tocsin.engine import Engine, Rooms
from tocsin.join.base import JoinIndex
from tocsin.lab.discover import implementations
from tocsin.rank.base import RankIndex

ROOMS = [
    (Rooms(**{room: make}), str(shape))
    for room, protocol in (("join", JoinIndex), ("rank", RankIndex))
    for make in implementations(protocol, f"tocsin.{room}")
    for shape in protocol.shapes
]


@pytest.mark.parametrize(("rooms", "shape"), ROOMS)
def test_keeps_the_law(rooms: Any, shape: str) -> None:
    # test_law_property runs the default rooms for longer
    @settings(max_examples=max(40, settings().max_examples // 3))
    @given(cases(shape))
    def check(case: Case) -> None:
        witness = Witness(case.tables)
        witness.engine = Engine(rooms=rooms)
        for table in case.tables:
            witness.engine.execute(str(table))
        ids = [witness.subscribe(asked) for asked in case.asked]
        for n, step in enumerate(case.steps):
            witness.step(step)
            if n == len(case.steps) // 2:
                witness.unsubscribe(ids.pop())
        witness.engine._check()

    check()

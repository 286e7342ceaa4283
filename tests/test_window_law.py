"""The law of windows: the engine is the reference, at every moment of random changes."""

from __future__ import annotations

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tocsin.engine import Engine, Rooms
from tocsin.group.scan import GroupScan
from tocsin.join.scan import JoinScan
from tocsin.lab.window_law import (
    SHAPES,
    WindowWitness,
    random_change,
    random_event,
    random_queries,
    random_query,
)
from tocsin.match.scan import Scan
from tocsin.rank.scan import RankScan

PHASES = (
    Phase.explicit,
    Phase.reuse,
    Phase.generate,
)  # examples are seeds, so shrinking is slow and helps little

SCANS = Rooms(match=Scan, join=JoinScan, rank=RankScan, group=GroupScan)


@pytest.mark.parametrize("rooms", [None, SCANS], ids=["rooms", "scans"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_law_of_windows(shape: str, rooms: Rooms | None) -> None:
    @settings(max_examples=max(4, settings().max_examples // 2), phases=PHASES)
    @given(st.randoms(use_true_random=False))
    def check(rng: Random) -> None:
        witness = WindowWitness(rooms)
        for _ in range(3):
            witness.subscribe(random_query(rng, shape))
        for _ in range(rng.randint(1, 12)):
            random_change(witness, rng)
        witness.engine._check()

    check()


@given(st.randoms(use_true_random=False))
def test_subscriptions_come_and_go(rng: Random) -> None:
    witness = WindowWitness()
    ids = [witness.subscribe(sql) for sql in random_queries(rng, 3)]
    for sql in random_queries(rng, 9):
        for _ in range(rng.randint(1, 4)):
            random_change(witness, rng)
        ids.append(witness.subscribe(sql))
        if rng.random() < 0.5:
            witness.unsubscribe(ids.pop(rng.randrange(len(ids))))
        witness.engine._check()
    for id in ids:
        witness.unsubscribe(id)
    assert not witness.engine.stats()["windows"]


@given(st.randoms(use_true_random=False))
def test_a_saved_engine_has_its_windows(rng: Random) -> None:
    witness = WindowWitness()
    for sql in random_queries(rng, 9):
        witness.subscribe(sql)
    for _ in range(6):
        random_change(witness, rng)
    witness.tick()
    with TemporaryDirectory() as folder:
        witness.engine.save(Path(folder) / "saved")
        before = witness.engine.stats()["windows"]
        witness.engine = Engine.load(Path(folder) / "saved", clock=witness._clock)
    after = witness.engine.stats()["windows"]
    assert {n: (w["rows"], w["too_late"]) for n, w in before.items()} == {
        n: (w["rows"], w["too_late"]) for n, w in after.items()
    }
    for _ in range(6):
        random_change(witness, rng)
    witness.engine._check()


@given(st.randoms(use_true_random=False))
def test_a_step_that_fails_changes_no_window(rng: Random) -> None:
    def refuse(step: object) -> None:
        raise ValueError("refused")

    witness = WindowWitness()
    for shape in ("absent", "absent", "exists"):
        witness.subscribe(random_query(rng, shape))
    for _ in range(8):
        random_change(witness, rng)
        stop = witness.engine.on_step(refuse)
        with pytest.raises(ValueError, match="refused"):
            witness.engine.apply("hits", [random_event(rng, witness, "hits") for _ in range(4)])
        stop()
        witness.engine._database._check()

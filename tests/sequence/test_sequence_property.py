"""Sequences: engine and reference emit the same rows, at every event."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tocsin.lab.sequence_law import SequenceWitness, random_change, random_sequence

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)


@settings(max_examples=max(40, settings().max_examples), phases=PHASES)
@given(st.randoms(use_true_random=False))
def test_the_law_of_sequences(rng: Random) -> None:
    witness = SequenceWitness()
    ids = [witness.subscribe(random_sequence(rng)) for _ in range(rng.randint(1, 5))]
    for n in range(rng.randint(4, 14)):
        random_change(witness, rng)
        if n % 4 == 3:
            witness.unsubscribe(ids.pop(rng.randrange(len(ids))))
            ids.append(witness.subscribe(random_sequence(rng)))
    for id in ids:
        witness.unsubscribe(id)
    witness.engine._check()
    assert not witness.engine.stats()["sequence"]["chains"]


@pytest.mark.parametrize("seed", range(2))
def test_state_is_bounded(seed: int) -> None:
    """Keys that come once are dropped when their time is over."""
    witness, rng = SequenceWitness(), Random(seed)
    witness.subscribe(
        "SELECT a.ip, b.ip AS last FROM logins a FOLLOWED BY logins b USING (user) WITHIN '2 seconds'"
        " WHERE a.ok = FALSE"
    )
    for batch in range(60):
        witness.now = witness.now.replace(second=batch % 60)
        events = [{"user": f"u{batch}-{n}", "ip": n, "ok": rng.random() < 0.5} for n in range(200)]
        witness.engine.apply("logins", events)
    seen = witness.engine.stats()["sequence"]
    assert seen["chains"] < 1500 and seen["events"]["logins"] < 2000
    witness.engine._check()

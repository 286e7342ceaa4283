"""What users join: keys of a Zipf law, keys that come once. A tenth of the memory against a shrunk TTL."""

from __future__ import annotations

import numpy as np
import pytest

from tocsin.lab.bench.stream_joins import KeyedEvents, once, pairs_within, run_events, zipf
from tocsin.limits.models import Arrivals, Chooser

WINDOW, EVENTS, BATCH = 1000, 5000, 20
CASES = {
    "Zipf 1.1": (zipf(EVENTS, 5 * WINDOW, 1.1, WINDOW), 3.5),
    "Zipf 0.8": (zipf(EVENTS, 5 * WINDOW, 0.8, WINDOW), 4.5),
    "keys that come once": (once(EVENTS, WINDOW, WINDOW / 10), 1.4),
}


@pytest.mark.parametrize("name", CASES)
def test_a_tenth_of_the_memory(name: str) -> None:
    events, bar = CASES[name]
    first = EVENTS // 3
    exact = pairs_within(events, first, BATCH)
    memory = f", memory = {WINDOW // 10}"
    kept, report = run_events(events, memory, BATCH, first)
    fifo, _ = run_events(events, f"{memory}, policy = 'fifo'", BATCH, first)
    assert exact >= kept >= bar * fifo > 0, f"{kept / exact:.3f}, fifo {fifo / exact:.3f}, {report.model}"


@pytest.mark.parametrize("numbers", [True, False])
@pytest.mark.parametrize("exponent", [0.8, 1.1])
def test_a_zipf_law_is_counted(exponent: float, numbers: bool) -> None:
    """Neither counts that fade nor delays: they predict worse. Codes are given in order of arrival."""
    events = zipf(24_000, 20_000, exponent, 0)
    _, code = np.unique(events.key, return_inverse=True)
    order = np.argsort(np.unique(events.key, return_index=True)[1])
    code = np.argsort(order)[code]
    chooser, stationary = Chooser(windows=(30,)), 0
    for begin in range(0, len(code), 40):
        side, codes = events.side[begin : begin + 40], code[begin : begin + 40]
        keys = events.key[begin : begin + 40]
        mine, other = codes[side == 1], codes[side == 0]
        values = keys[side == 1].astype(float) if numbers else None
        chooser.observe(Arrivals(mine, values, np.zeros(len(mine))))
        chooser.observe_rows(Arrivals(other, None, np.zeros(len(other))))
        if begin >= 4_000:
            stationary += chooser.name == "stationary"
    assert stationary >= 0.9 * 500


def test_delays_of_texts_are_found_beside_keys_that_come_once() -> None:
    events: KeyedEvents = once(6_000, 0, 100)
    choosers = Chooser(), Chooser()
    for side, key in zip(events.side.tolist(), events.key.tolist(), strict=True):
        some = Arrivals(np.array([key]), None, np.zeros(1))
        choosers[side].observe(some)
        choosers[1 - side].observe_rows(some)
    assert choosers[1].name == "delay"

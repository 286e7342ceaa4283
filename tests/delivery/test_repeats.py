"""Suppressing and digests: what is sent adds up to the answer, and says once when it is empty."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tocsin.delivery.repeats import Flow, FlowState, SendTiming, TimedDelta

ROWS = [b'{"host":"a","v":1}', b'{"host":"a","v":2}', b'{"host":"b","v":1}']
TIMINGS = [
    SendTiming(),
    SendTiming(suppress=60.0),
    SendTiming(digest=60.0),
    SendTiming(digest=30.0, suppress=100.0),
    SendTiming(suppress=60.0, by=("host",)),
]


def change(at, subscription, sign, row=ROWS[0]):
    return TimedDelta(at, int(at) + 1, subscription, sign, row, None)


def sent(notices):
    return [(c.subscription, c.sign) for notice in notices for c in notice.changes]


@given(st.data())
def test_what_is_sent_adds_up_to_the_answer(data):
    """Answers of two subscriptions, driven at random, with restarts in between."""
    timing = data.draw(st.sampled_from(TIMINGS))
    answers = {1: Counter(), 2: Counter()}
    received = {1: Counter(), 2: Counter()}
    flow, now, resolved = Flow(timing, lambda id: True), 0.0, 0
    is_firing = {1: False, 2: False}

    def receive(notices):
        nonlocal resolved
        for notice in notices:
            for c in notice.changes:
                received[c.subscription][c.row] += c.sign
                assert received[c.subscription][c.row] >= 0, "a row left that was not there"
                is_firing[c.subscription] = True
            for id in notice.resolved:
                assert not +received[id]
                assert is_firing[id], "resolved twice"
                is_firing[id] = False
                resolved += 1

    for _ in range(data.draw(st.integers(0, 40))):
        now += data.draw(st.sampled_from([0.0, 1.0, 20.0, 70.0]))
        id, row = data.draw(st.sampled_from([1, 2])), data.draw(st.sampled_from(ROWS))
        sign = -1 if answers[id][row] and data.draw(st.booleans()) else 1
        answers[id][row] += sign
        flow.add([change(now, id, sign, row)])
        receive(flow.take(now))
        if data.draw(st.booleans()):  # stored and read again
            state = msgspec.msgpack.decode(msgspec.msgpack.encode(flow.state), type=FlowState)
            flow = Flow(timing, lambda id: True, state)
    while flow.due is not None:
        now = max(now, flow.due)
        receive(flow.take(now))
    assert {id: +rows for id, rows in received.items()} == {id: +rows for id, rows in answers.items()}
    assert flow.state.counts == {id: rows.total() for id, rows in answers.items() if +rows}


def test_without_options_all_leaves_at_once():
    flow = Flow(SendTiming(), lambda id: True)
    flow.add([change(0, 1, +1), change(0, 1, -1)])
    (notice,) = flow.take(0)
    assert sent([notice]) == [(1, 1), (1, -1)] and notice.resolved == [1]
    assert flow.due is None


def test_a_digest_leaves_after_its_time_without_what_came_and_went():
    flow = Flow(SendTiming(digest=300.0), lambda id: True)
    flow.add([change(10, 1, +1), change(20, 2, +1), change(30, 1, -1)])
    assert flow.take(309) == [] and flow.due == 310
    (notice,) = flow.take(310)
    assert sent([notice]) == [(2, 1)] and notice.resolved == []


def test_repeats_of_streams_are_dropped_and_counted():
    flow = Flow(SendTiming(suppress=60.0), lambda id: False)
    flow.add([change(at, 1, +1) for at in (0, 10, 20)])
    assert sent(flow.take(20)) == [(1, 1)]
    flow.take(61)
    flow.add([change(70, 1, +1)])
    (notice,) = flow.take(70)
    assert sent([notice]) == [(1, 1)] and notice.resolved == []


def test_columns_tell_repeats_apart():
    flow = Flow(SendTiming(suppress=60.0, by=("host",)), lambda id: True)
    flow.add([change(0, 1, +1, ROWS[0]), change(1, 1, -1, ROWS[0]), change(1, 1, +1, ROWS[1])])
    assert sent(flow.take(1)) == [(1, 1)]
    flow.add([change(2, 1, +1, ROWS[2])])
    assert sent(flow.take(2)) == [(1, 1)]
    (notice,) = flow.take(60)
    assert [(c.sign, c.row) for c in notice.changes] == [(-1, ROWS[0]), (1, ROWS[1])]

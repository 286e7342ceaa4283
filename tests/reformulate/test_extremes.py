"""What clients keep from messages alone, by every method, against brute force."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rank.test_extremes import RANGES, batch, columns, start, steps, values_of
from tocsin.model.message import Messages
from tocsin.rank.extremes import DistinctRanges, Extremes
from tocsin.rank.space import SubscriptionSpace
from tocsin.reformulate.contents import Contents
from tocsin.reformulate.extremes import (
    ReformulatedDistinct,
    ReformulatedMinima,
    RelaxedMinima,
    UnicastMinima,
)

LOW, HIGH = columns(RANGES)


def apply(client: Contents, sent: Messages, slot: int, ends: tuple[int, int]) -> int:
    """Deliver what is for a client; how many messages that are."""
    mine = sent.received_by(slot, [ends])
    client.apply(sent.take(mine), {})
    return len(mine)


def space() -> SubscriptionSpace:
    index = SubscriptionSpace()
    index.add(np.arange(len(RANGES)), LOW, HIGH)
    return index


@settings(max_examples=max(20, settings().max_examples))
@given(start, steps, st.booleans(), st.sampled_from([1, 3]))
def test_contents_of_clients_are_correct(first, drawn, largest, size) -> None:
    x, y = columns(first)
    servers = [
        ReformulatedMinima(Extremes(x, y, largest=largest)),
        UnicastMinima(Extremes(x, y, largest=largest), space()),
        RelaxedMinima(x, y, largest=largest),
    ]
    pick = max if largest else min
    clients = [[server.contents(*ends) for ends in RANGES] for server in servers]
    rows, states = batch(dict(enumerate(first)), drawn)
    truth = [[pick(values_of(state, *ends), default=None) for ends in RANGES] for state in states]
    for begin in range(0, len(rows), size):
        part = rows[begin : begin + size]
        number, has, *codes = columns(part, 4)
        changed = [
            sum(truth[k][i] != truth[k + 1][i] for k in range(begin, begin + len(part)))
            for i in range(len(RANGES))
        ]
        for server, own in zip(servers, clients, strict=True):
            before = server.counters["messages"]
            sent = server.update(number, *codes, has != 0)
            sent._check()
            received = [apply(client, sent, i, RANGES[i]) for i, client in enumerate(own)]
            assert [client.content() for client in own] == truth[begin + len(part)]
            if server.name != "cn":
                assert received == changed, "one message for each change, and none without"
            if server.name == "s-un":
                assert server.counters["messages"] - before == sum(received)
    s_cn, s_un, cn = (server.counters for server in servers)
    assert {**s_un, "messages": s_cn["messages"]} == s_cn and set(cn) == set(s_cn)


@given(start, steps)
def test_sets_of_values(first, drawn) -> None:
    ranges = ReformulatedDistinct(DistinctRanges(*columns(first)))
    clients = [ranges.contents(*ends) for ends in RANGES]
    rows, states = batch(dict(enumerate(first)), drawn)
    for row, state in zip(rows, states[1:], strict=True):
        number, has, *codes = columns([row], 4)
        sent = ranges.update(number, *codes, has != 0)
        for client, ends in zip(clients, RANGES, strict=True):
            apply(client, sent, 0, ends)
            assert client.content() == set(values_of(state, *ends))


def test_a_filter_is_comparisons_with_bounds() -> None:
    """Any matcher that can compare attributes with constants delivers as `received_by` does."""
    server = ReformulatedMinima(Extremes([1, 3, 5, 4], [1, 5, 7, 2]))
    messages = server.update([3, 0], [4, 6], [9, 0])
    l_low, l_high, r_low, r_high = messages.regions.boxes[:, 0].T
    assert len(messages) > 3
    for low, high in RANGES:
        passes = (l_low <= low) & (l_high >= low) & (r_low <= high) & (r_high >= high)
        assert np.array_equal(np.flatnonzero(passes), messages.received_by(0, [(low, high)]))

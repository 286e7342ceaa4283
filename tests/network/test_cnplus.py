"""CN+: every receiver gets the right payload; the kernel does what nodes do; caps, plain nodes, restarts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.errors import UsageError
from tocsin.lab.simulate.payload_nodes import PayloadNodes
from tocsin.model.message import MessageKind, Messages, Regions, quadrant
from tocsin.network.base import has_bit
from tocsin.network.can import Can, CanFixed
from tocsin.network.cbn import Cbn
from tocsin.network.cnplus import PayloadNetwork

PAYLOAD, SIZE = 1000, 2100


def random_messages(rng: random.Random, count: int) -> Messages:
    kinds = [MessageKind.ROW, MessageKind.EXPOSE, MessageKind.JOINED, MessageKind.GONE]
    kind = np.array([rng.choice(kinds) for _ in range(count)], np.int8)
    side = np.array([rng.randrange(2) for _ in range(count)], np.int8)
    row, partner = (np.array([rng.randrange(8) for _ in range(count)], np.int64) for _ in range(2))
    boxes = [[[quadrant(rng.randrange(30))], [quadrant(rng.randrange(30))]] for _ in range(count)]
    zeros = np.zeros(count, np.int64)
    return Messages(np.arange(count), zeros, kind, side, zeros, row, partner, Regions.of(boxes))


def filled(network: PayloadNetwork, rng: random.Random, count: int = 60) -> None:
    points = [[sorted((rng.randrange(30), rng.randrange(30))) for _ in range(2)] for _ in range(count)]
    at = [rng.choice(network.brokers.tolist()) for _ in range(count)]
    network.subscribe(np.arange(count), points, at)


def idents(messages: Messages, m: int) -> list[tuple[int, int]]:
    kind, row = messages.kind[m], int(messages.row[m])
    if kind == MessageKind.JOINED:
        return [(0, row), (1, int(messages.partner[m]))]
    return [] if kind == MessageKind.GONE else [(int(messages.side[m]), row)]


@settings(max_examples=max(40, settings().max_examples))
@given(
    seed=st.integers(0, 2**32),
    repository=st.sampled_from([0, 1, 3, 100]),
    directory=st.sampled_from([0, 2, 5, 100]),
    tree=st.sampled_from([Cbn, CanFixed]),
    refers=st.booleans(),
)
def test_property_the_kernel_does_what_nodes_do(
    seed: int, repository: int, directory: int, tree: type, refers: bool
) -> None:
    rng = random.Random(seed)
    brokers = rng.randint(1, 15)
    limits = {"repository": repository, "directory": directory}
    network = PayloadNetwork(inner=tree(brokers), payload=PAYLOAD, refers=refers, **limits)
    filled(network, rng)
    plain = {b for b in range(brokers) if rng.random() < 0.3} - {network.server}
    network.make_plain(sorted(plain))
    parents = network.parents()
    assert parents is not None
    nodes = PayloadNodes(parents.tolist(), network.server, (directory, repository), plain, refers=refers)
    for _ in range(6):
        messages = random_messages(rng, 10)
        delivery = network.deliver(messages, SIZE)
        delivery._check()
        received = network.receivers(messages, delivery)
        before = nodes.full, sum(nodes.fetches.values()), nodes.detours
        hops = 0
        for m in range(len(messages)):
            reached = {b for b in range(brokers) if has_bit(delivery.reached, m, b)}
            local = set(network.placement.broker[received.slot[received.message == m]].tolist())
            assert delivery.gateways[m] == len(local)
            carried = [10 * row + side for side, row in idents(messages, m)]
            nodes.send(list(dict.fromkeys(carried)), reached, local)
            hops += len(carried) * (len(reached) - 1)
        full = nodes.full - before[0]
        fetched = sum(nodes.fetches.values()) - before[1]
        light = sum(int(delivery.hops[m]) * (SIZE - len(idents(messages, m)) * PAYLOAD) for m in range(10))
        ids = 16 * hops
        detours = (nodes.detours - before[2]) * (24 + 8 + 16)
        fetches = fetched * (24 + 8 + 16 + PAYLOAD) + detours
        assert delivery.links.bytes.sum() == light + ids + full * PAYLOAD + fetches
        if rng.random() < 0.4:
            broker = rng.randrange(brokers)
            network.restart(broker)
            nodes.restart(broker)
        network._check()
    assert network.fetches == sum(nodes.fetches.values())
    assert network.fetches_from_server == nodes.fetches["server"]
    assert network.detours == nodes.detours


@pytest.mark.parametrize("repository", [0, 4, 100])
def test_lost_acknowledgements_and_restarts(repository: int) -> None:
    """`PayloadNodes.send` checks that brokers with receivers get the right payloads."""
    for seed in range(20):
        rng = random.Random(seed)
        parents = [0, *(rng.randrange(i) for i in range(1, 15))]
        plain = {b for b in range(1, 15) if rng.random() < 0.3}
        nodes = PayloadNodes(parents, 0, (12, repository), plain)
        for _ in range(100):
            local = {rng.randrange(15) for _ in range(rng.randint(1, 5))}
            reached = set(local)
            for broker in local:
                while broker:
                    broker = parents[broker]
                    reached.add(broker)
            if rng.random() < 0.1:
                nodes.restart(rng.randrange(1, 15))
            nodes.send(rng.sample(range(25), 2), reached, local, acks=rng)


def sent_bytes(network: PayloadNetwork | Cbn, messages: Messages) -> int:
    return int(network.deliver(messages, SIZE).links.bytes.sum())


def test_a_payload_crosses_a_link_once() -> None:
    rng = random.Random(1)
    network = PayloadNetwork(inner=Cbn(20), payload=PAYLOAD, repository=100)
    filled(network, rng)
    messages = random_messages(rng, 300)
    delivery = network.deliver(messages, SIZE)
    assert network.fetches == 0
    payloads = len({ident for m in range(300) for ident in idents(messages, m)})
    carried = delivery.links.bytes.sum() - sum(
        int(delivery.hops[m]) * (SIZE - len(idents(messages, m)) * (PAYLOAD - 16)) for m in range(300)
    )
    assert 0 < carried <= payloads * 19 * PAYLOAD
    network.renew(0, np.arange(8))
    assert sent_bytes(network, messages) > sent_bytes(network, messages)


def test_traffic_of_half_plain_brokers_is_in_between() -> None:
    totals = []
    for plain in (20, 10, 0):
        rng = random.Random(2)
        network = PayloadNetwork(inner=Cbn(20), payload=PAYLOAD, repository=100)
        filled(network, rng)
        network.make_plain(list(range(0, 20, 20 // plain)) if plain else [])
        totals.append(sent_bytes(network, random_messages(rng, 300)))
    assert totals[0] > totals[1] > totals[2]


def test_brokers_come_and_go() -> None:
    rng = random.Random(3)
    network = PayloadNetwork(8, payload=PAYLOAD, repository=3)
    filled(network, rng)
    for step in range(12):
        sent_bytes(network, random_messages(rng, 20))
        if step % 3:
            network.remove_broker(rng.choice(network.brokers.tolist()))
        else:
            network.add_broker()
            network.add_broker()
        network._check()


def test_what_does_not_fit_is_rejected() -> None:
    with pytest.raises(UsageError, match="fixed tree"):
        PayloadNetwork(inner=Can(3))
    with pytest.raises(UsageError):
        PayloadNetwork(3, repository=-1)
    network = PayloadNetwork(3, payload=PAYLOAD)
    with pytest.raises(UsageError, match="smaller"):
        network.deliver(random_messages(random.Random(1), 5), 10)

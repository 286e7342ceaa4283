"""Every network against unicast and brute force: who receives a message, while all else comes and goes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.network.worlds import NetworkWorld, expected, messages_of
from tests.reformulate.worlds import World, as_change, ranges_of
from tocsin.errors import UsageError
from tocsin.lab.discover import implementations
from tocsin.model.message import Messages, Recipients, Regions
from tocsin.network.base import Delivery, Network, has_bit
from tocsin.network.cnplus import PayloadNetwork
from tocsin.network.unicast import Unicast
from tocsin.reformulate.base import Scheme

NAMES = "can can-fixed cbn cn+ unicast unicast-gateways"
NETWORKS = implementations(Network, "tocsin.network")
SCHEMES = implementations(Scheme, "tocsin.reformulate")


def by_name(argument: str, found: list[type]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(argument, found, ids=[each.name for each in found])


def test_every_network_is_found() -> None:
    assert {network.name for network in NETWORKS} == set(NAMES.split())


def pairs(recipients: Recipients) -> list[tuple[int, int]]:
    return sorted(zip(recipients.message.tolist(), recipients.slot.tolist(), strict=True))


def check_delivery(network: Network, delivery: Delivery, sizes: np.ndarray) -> None:
    """Counts fit each other."""
    delivery._check()
    if not isinstance(network, PayloadNetwork):
        assert delivery.links.bytes.sum() >= np.sum(delivery.hops * sizes)
    assert np.all(np.isin(delivery.links.sender, network.brokers))
    assert np.all(np.isin(delivery.links.receiver, network.brokers))
    links = list(zip(delivery.links.sender.tolist(), delivery.links.receiver.tolist(), strict=True))
    assert len(links) == len(set(links))
    assert np.all(delivery.depths[delivery.hops == 0] == 0)


@by_name("made", NETWORKS)
@settings(max_examples=max(25, settings().max_examples))
@given(seed=st.integers(0, 2**32), brokers=st.integers(1, 80))
def test_property_receives_what_unicast_delivers(made: type[Network], seed: int, brokers: int) -> None:
    world = NetworkWorld(seed)
    network, meaning = made(brokers, world.planes), Unicast(1, world.planes)
    world.subscribe(network)
    for _ in range(5):
        messages, sizes = world.messages(8), np.arange(8) + 100
        delivery = network.deliver(messages, sizes)
        found = pairs(network.receivers(messages, delivery))
        assert found == expected(world, messages)
        check_delivery(network, delivery, sizes)
        slots = np.array(sorted(world.points), np.int64)
        points = np.array([world.points[slot] for slot in slots.tolist()], np.int64)
        meaning.subscribe(slots, points.reshape(len(slots), world.planes, 2))
        assert found == pairs(meaning.receivers(messages, meaning.deliver(messages, sizes)))
        meaning.unsubscribe(slots)
        world.unsubscribe(network)
        world.change_brokers(network)
        network._check()
        world.subscribe(network)
        network._check()
        assert network.stats()["subscriptions"] == len(world.points)
        assert network.stats()["brokers"] == len(network.brokers)


@by_name("made", NETWORKS)
def test_addressed_messages_reach_their_recipients(made: type[Network]) -> None:
    world = NetworkWorld(7)
    network = made(9, world.planes)
    world.subscribe(network, most=50)
    slots = sorted(world.points)[:6]
    recipients = Recipients(np.array([0, 0, 0, 1, 2, 2]), np.array(slots))
    messages = messages_of(Regions.of([[[]]] * 4, world.planes), recipients)
    delivery = network.deliver(messages, [10, 20, 30, 40])
    assert pairs(network.receivers(messages, delivery)) == pairs(recipients)
    assert delivery.hops[3] == 0 and delivery.hops[:3].min() >= 1


@by_name("made", NETWORKS)
def test_bad_input_changes_nothing(made: type[Network]) -> None:
    network = made(3, 1)
    network.subscribe(np.array([4, 5]), [[(1, 2)], [(3, 9)]])
    for bad in (
        lambda: network.subscribe(np.array([6, 4]), [[(1, 2)], [(3, 9)]]),
        lambda: network.subscribe(np.array([6, 6]), [[(1, 2)], [(3, 9)]]),
        lambda: network.subscribe(np.array([6]), [[(1, 2)]], at=[17]),
        lambda: network.unsubscribe(np.array([4, 6])),
        lambda: network.remove_broker(99),
        lambda: network.deliver(messages_of(Regions.of([[[(3, 2, 0, 9)]]], 1)), 1),
        lambda: network.deliver(messages_of(Regions.of([[[(1, 2, 0, 9)], [(1, 2, 0, 9)]]], 2)), 1),
        lambda: made(0),
    ):
        with pytest.raises(UsageError):
            bad()
    assert network.stats()["subscriptions"] == 2
    network._check()
    for broker in network.brokers.tolist()[:2]:
        network.remove_broker(broker)
    with pytest.raises(UsageError, match="last broker"):
        network.remove_broker(int(network.brokers[0]))


@by_name("made", NETWORKS)
@by_name("scheme_of", SCHEMES)
@settings(max_examples=settings().max_examples if settings().max_examples >= 500 else 3)
@given(seed=st.integers(0, 2**32))
def test_property_schemes_over_networks(made: type[Network], scheme_of: type[Scheme], seed: int) -> None:
    """A subscription receives the messages whose regions hold its point, whatever the scheme."""
    world, scheme, network = World(seed, subscriptions=40), scheme_of(), made(12)
    slots = np.arange(len(world.subscriptions))
    scheme.subscribe(slots, ranges_of(world.subscriptions))
    network.subscribe(slots, [scheme.point(slot) for slot in slots.tolist()])
    parts = [scheme.describe(as_change(*world.change()), number) for number in range(12)]
    for messages in parts:
        delivery = network.deliver(messages, 250)
        received = network.receivers(messages, delivery)
        for slot in slots.tolist():
            own = messages.received_by(slot, scheme.point(slot))
            assert sorted(received.message[received.slot == slot].tolist()) == sorted(own.tolist())
            gateway = int(network.placement.broker[slot])
            assert np.all(has_bit(delivery.reached, own, gateway))
    assert isinstance(messages, Messages)

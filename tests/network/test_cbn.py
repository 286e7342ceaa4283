"""Digests: nobody is missed, few boxes, sent upwards only if they change; the tree of brokers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.network.worlds import NetworkWorld, messages_of
from tocsin.errors import UsageError
from tocsin.model.message import GREATEST, LEAST, Regions, quadrant
from tocsin.network.base import has_bit
from tocsin.network.cbn import Cbn
from tocsin.network.digests import Digest


@settings(max_examples=max(25, settings().max_examples))
@given(seed=st.integers(0, 2**32), most=st.integers(1, 8))
def test_property_a_digest_holds_what_entered(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.integers(0, int(rng.choice([3, 1000])), (30, 4))
    points[rng.random((30, 4)) < 0.05] = LEAST
    points[rng.random((30, 4)) < 0.05] = GREATEST
    grown, again = Digest(4, most), Digest(4, most)
    for number, point in enumerate(points):
        held = bool(grown.holds(point[None])[0])
        assert (grown.enter(np.stack([point, point], axis=1)) is None) is held
        assert grown.holds(points[: number + 1]).all() and len(grown.boxes) <= most
    again.make_again(np.stack([points, points], axis=2))
    assert again.holds(points).all() and len(again.boxes) <= most
    both = Digest(4, most)
    both.make_again(np.concatenate([grown.boxes, again.boxes]))
    assert both.holds(points).all()
    again.make_again(again.boxes[:0])
    assert len(again.boxes) == 0


def test_more_boxes_forward_less() -> None:
    rng = np.random.default_rng(3)
    low = rng.integers(0, 1000, (4000, 2))
    points = np.stack([low, low + rng.integers(0, 60, (4000, 2))], axis=2)
    at = np.argsort(np.argsort(low[:, 0])) * 40 // 4000
    values = rng.integers(0, 1000, (100, 2)).tolist()
    messages = messages_of(Regions.of([[[quadrant(a)], [quadrant(c)]] for a, c in values]))
    hops = []
    for boxes in (1, 4, 16):
        network = Cbn(40, boxes=boxes)
        network.subscribe(np.arange(4000), points, at)
        network._check()
        hops.append(int(network.deliver(messages, 1).hops.sum()))
    assert hops[0] > hops[1] > hops[2]


def test_a_subscription_inside_a_digest_is_not_sent_upwards() -> None:
    network = Cbn(20, planes=1, fan_out=2, boxes=1)
    network.subscribe(np.arange(2), [[(0, 50)], [(50, 100)]], at=[19, 19])
    sent = network.digests_sent
    network.subscribe(np.array([2]), [[(20, 70)]], at=[19])
    assert network.digests_sent == sent > 0
    network.subscribe(np.array([3]), [[(20, 170)]], at=[19])
    assert network.digests_sent > sent


def test_digests_are_made_again_once_a_quarter_has_gone() -> None:
    network = Cbn(4, planes=1, boxes=2)
    network.subscribe(np.arange(10), [[(i, 10 * i)] for i in range(10)], at=[3] * 10)
    before = network.digest(3).boxes.copy()
    network.unsubscribe(np.array([9, 8]))
    assert np.array_equal(network.digest(3).boxes, before)
    network.unsubscribe(np.array([7, 6]))
    assert network.digest(3).boxes[:, :, 1].max() == 50
    network._check()
    network.unsubscribe(np.arange(6))
    assert len(network.digest(3).boxes) == 0
    messages = messages_of(Regions.of([[[quadrant(5)]]], planes=1))
    assert network.deliver(messages, 1).hops.tolist() == [0]


@settings(max_examples=max(15, settings().max_examples))
@given(seed=st.integers(0, 2**32), brokers=st.integers(2, 40), fan_out=st.integers(1, 4))
def test_property_messages_go_down_the_tree(seed: int, brokers: int, fan_out: int) -> None:
    """A broker reached has the one above it reached, unless it is the server."""
    world = NetworkWorld(seed)
    network = Cbn(brokers, world.planes, fan_out=fan_out, boxes=3)
    for _ in range(3):
        world.subscribe(network)
        world.change_brokers(network)
        messages = world.messages(10)
        delivery = network.deliver(messages, 7)
        for broker in network.brokers.tolist():
            if broker != network.server:
                here = has_bit(delivery.reached, np.arange(10), broker)
                above = has_bit(delivery.reached, np.arange(10), network._parent[broker])
                assert np.all(above[here])
        assert delivery.links.bytes.sum() == 7 * delivery.hops.sum()
        network._check()


def test_a_tree_needs_links_and_boxes() -> None:
    for bad in ({"fan_out": 0}, {"boxes": 0}):
        with pytest.raises(UsageError):
            Cbn(3, **bad)

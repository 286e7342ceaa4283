"""Zones: balance, neighbours, routes, one message per zone; trees; splits by traffic; brokers that leave."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.network.worlds import NetworkWorld, messages_of
from tocsin.errors import UsageError
from tocsin.model.message import GREATEST, LEAST, Regions, quadrant
from tocsin.network.base import boxes_of, has_bit
from tocsin.network.can import Can, CanFixed
from tocsin.network.zones import overlay_cells


def drawn(count: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    middle = rng.integers(0, 100_000, (count, 2))
    width = rng.integers(0, 20_000, (count, 2))
    return np.stack([middle - width, middle + width], axis=2)


def regions_like_skylines(count: int, seed: int = 0) -> Regions:
    rng = np.random.default_rng(seed)
    return Regions.of(
        [
            [[quadrant(int(a))], [quadrant(int(c)) for c in cs]]
            for a, *cs in rng.integers(0, 100_000, (count, 5))
        ]
    )


@settings(max_examples=max(25, settings().max_examples))
@given(seed=st.integers(0, 2**32), brokers=st.integers(1, 60), fixed=st.booleans())
def test_property_each_zone_of_the_region_gets_a_message_once(seed: int, brokers: int, fixed: bool) -> None:
    world = NetworkWorld(seed)
    network = (CanFixed if fixed else Can)(brokers, world.planes)
    world.subscribe(network, most=250)
    messages = world.messages(12)
    delivery = network.deliver(messages, 1)
    overlay, cuts = network.overlay()
    cells = overlay_cells(cuts, boxes_of(messages.regions))
    for m in range(len(messages)):
        region = set()
        for box in cells[messages.regions.start[m] : messages.regions.start[m + 1]]:
            meets = (
                (overlay.first <= box[:, 1]) & (overlay.last >= box[:, 0]) & (overlay.first <= overlay.last)
            )
            region |= set(np.flatnonzero(meets.all(axis=1)).tolist())
        reached = {b for b in range(len(network._live)) if has_bit(delivery.reached, m, b)}
        assert region <= reached and delivery.gateways[m] == len(region)
        if fixed and region:
            ways = {network.server}
            for zone in region:
                while zone not in ways:
                    ways.add(zone)
                    zone = int(overlay.parent[zone])
            assert reached == ways and delivery.hops[m] == len(ways) - 1
            assert delivery.depths[m] == sum(overlay.depth[zone] for zone in region)
        elif region:
            assert len(region) - 1 <= delivery.hops[m]
    assert delivery.links.bytes.sum() == delivery.hops.sum()


def test_zones_have_about_equally_many_subscriptions() -> None:
    network = Can(100)
    network.subscribe(np.arange(10_000), drawn(10_000))
    load = np.bincount(network.placement.broker[:10_000], minlength=100)
    assert load.min() >= 50 and load.max() <= 200
    assert network.stats()["zones"] == 100


def test_a_route_is_never_longer_than_the_overlay_is_wide() -> None:
    network = Can(200)
    network.subscribe(np.arange(5000), drawn(5000))
    rng = np.random.default_rng(1)
    points = rng.integers(0, 100_000, (200, 4)).tolist()
    one = Regions.of([[[(a, a, b, b)], [(c, c, d, d)]] for a, b, c, d in points])
    delivery = network.deliver(messages_of(one), 1)
    assert np.all(delivery.gateways == 1) and np.all(delivery.hops == delivery.depths)
    assert delivery.hops.max() < 60
    fixed = CanFixed(200)
    fixed.subscribe(np.arange(5000), drawn(5000))
    assert np.all(fixed.deliver(messages_of(one), 1).depths <= delivery.depths)  # shortest ways


def test_regions_that_are_not_connected_are_entered_one_by_one() -> None:
    network = Can(64, planes=1)
    network.subscribe(np.arange(1000), [[(i, i + 1)] for i in range(1000)])
    corners = Regions.of([[[(0, 20, 0, 30), (900, 950, 920, 970)]]], planes=1)
    delivery = network.deliver(messages_of(corners), 1)
    received = network.receivers(messages_of(corners), delivery)
    assert sorted(received.slot.tolist()) == [*range(21), *range(919, 951)]


def test_zones_by_traffic_are_crossed_by_fewer_messages() -> None:
    """Ranges of the second plane are narrow, and regions of messages are one value of it."""
    points = drawn(20_000)
    points[:, 1, 1] = points[:, 1, 0] + 10
    sample, later = regions_like_skylines(200, 1), messages_of(regions_like_skylines(200, 2))
    by_load, by_traffic = Can(100), Can(100, sample=sample)
    for network in (by_load, by_traffic):
        network.subscribe(np.arange(20_000), points)
        network._check()
    met = [network.deliver(later, 1).gateways.sum() for network in (by_load, by_traffic)]
    assert met[1] < 0.8 * met[0]
    assert by_traffic.stats()["fullest"] <= 1.1 * by_load.stats()["fullest"]
    with pytest.raises(UsageError, match="planes"):
        Can(3, planes=1, sample=sample)


def test_idle_brokers_take_part_once_subscriptions_differ() -> None:
    network = Can(8, planes=1)
    network.subscribe(np.arange(5), [[(3, 4)]] * 5)
    assert network.stats()["zones"] == 1
    network.subscribe(np.arange(5, 60), [[(LEAST, i)] for i in range(5, 60)])
    assert network.stats()["zones"] == 8
    network.subscribe(np.arange(60, 70), [[(i, GREATEST)] for i in range(60, 70)])
    network._check()
    while len(network.brokers) > 1:
        network.remove_broker(network.server)
        network._check()
    assert np.all(network.placement.broker[:70] == network.brokers[0])

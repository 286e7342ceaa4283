"""Contents after every event: right runs pass, and what is wrong is noticed."""

from __future__ import annotations

import numpy as np
import pytest

from tocsin.errors import TocsinError
from tocsin.lab.simulate.exact import SHAPES, RandomWorld, replay
from tocsin.lab.simulate.payload_nodes import PayloadNodes
from tocsin.lab.simulate.run import SCHEMES
from tocsin.network.base import Network
from tocsin.network.can import Can, CanFixed
from tocsin.network.cbn import Cbn
from tocsin.network.cnplus import PayloadNetwork
from tocsin.network.unicast import Unicast
from tocsin.reformulate.contents import SemijoinContents
from tocsin.reformulate.joins import SemijoinsMerged

WORLDS = [RandomWorld(seed, shape, 60) for seed, shape in enumerate(SHAPES)]


def nodes_of(network: Network) -> PayloadNodes:
    parents = network.parents()
    assert parents is not None
    return PayloadNodes(parents.tolist(), network.server, (20, 4), set(network.brokers[::3].tolist()))


@pytest.mark.parametrize("made", [Unicast, Can, CanFixed, Cbn, PayloadNetwork], ids=lambda made: made.name)
def test_every_scheme_is_exact_after_every_event(made: type[Network]) -> None:
    for number, scheme in enumerate(SCHEMES.values()):
        found = replay(
            WORLDS[number % len(WORLDS)], scheme, made(9), nodes_of if made is PayloadNetwork else None
        )
        assert found.events == 60 and found.compared > 0
        assert (found.payloads > 0) == (made is PayloadNetwork)


def test_the_expected_contents_are_joins() -> None:
    world = RandomWorld(3, SHAPES[1], 80)
    tables: list[dict[int, tuple[int, int, int]]] = [{}, {}]
    current: dict[int, dict[tuple[int, int], int]] = {i: {} for i in range(len(world.sample))}
    for number, (side, row, version) in enumerate(world.rows):
        tables[side].pop(row, None)
        if world.changes.has[number]:
            tables[side][row] = int(world.changes.key[number]), int(world.changes.value[number]), version
        current |= world.expected[number]
        for i, slot in enumerate(world.sample):
            (a, b), (c, d) = world.points[slot].tolist()
            assert set(current[i]) == {
                (r[2], s[2])
                for r in tables[0].values()
                for s in tables[1].values()
                if r[0] == s[0] and a <= r[1] <= b and c <= s[1] <= d
            }


def test_wrong_contents_and_needless_messages_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(SemijoinContents, "_take", lambda *_: None)
        with pytest.raises(TocsinError, match="is wrong after event"):
            replay(WORLDS[1], SemijoinsMerged, Cbn(5))

    class Relaxed(SCHEMES["rel-sel"]):  # type: ignore[misc]
        name = "ref-sj-relaxed"

    with pytest.raises(TocsinError, match=r"needless|nobody"):
        replay(WORLDS[2], Relaxed, Unicast(3))


def test_a_gateway_without_the_payload_is_noticed() -> None:
    nodes = PayloadNodes([0, 0], 0, (4, 4), set())
    nodes.nodes[1].receive = lambda *_: (None, False)  # type: ignore[method-assign, assignment]
    with pytest.raises(TocsinError, match="broker 1 has None"):
        nodes.send([7], {0, 1}, {1})
    assert np.array_equal(nodes.children[0], [1])

"""Server, brokers and clients under faults: contents are exact at every watermark, and all get to the end."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.network.histories import EXAMPLES, SHAPES, any_query
from tests.network.loopback import Loopback
from tocsin.network import node, payloads, root
from tocsin.network.wire import MAX_PIECE, Again, ClientRequest, Resume

SCHEMES = ["ref-sj-clu+", "ref-sj-tup", "ref-sj-min", "rel-sel"]
WITHOUT_END = 1 << 40


def run(net: Loopback, steps: int, faults: float, restart: int) -> None:
    for step in range(steps):
        if net.random.random() < 0.6:
            net.change()
        if net.random.random() < faults:
            net.fault()
        if net.random.random() < 0.1:
            net.come_or_go()
        if net.random.random() < faults / 5:
            net.fall_silent()
            net.renew()
        if step == restart:
            net.restart_server()
        if net.random.random() < 0.2:
            net.tick()
        if step % 25 == 24:
            net.remind()
        net.run(3)
    net.settle()
    net.change()
    net.settle()
    assert net.compared


@pytest.mark.property
@pytest.mark.parametrize("shape", [*SHAPES, "any"])
@settings(deadline=None, max_examples=EXAMPLES)
@given(
    seed=st.integers(0, 2**32),
    scheme=st.sampled_from(SCHEMES),
    faults=st.sampled_from([0.0, 0.05, 0.3]),
    log=st.sampled_from([WITHOUT_END, 2000]),
    boxes=st.sampled_from([1, 4, 64]),
    brokers=st.integers(0, 6),
    restart=st.sampled_from([-1, -1, 20]),
    piece=st.sampled_from([MAX_PIECE, 300]),
    repository=st.sampled_from([None, 0, 20, WITHOUT_END]),
)
def test_contents_are_exact_at_every_watermark(
    shape, seed, scheme, faults, log, boxes, brokers, restart, piece, repository
) -> None:
    query = SHAPES.get(shape, any_query)
    with (
        patch.object(node, "MAX_PIECE", piece),
        patch.object(root, "MAX_PIECE", piece),
        patch.object(payloads, "LEAST_PAYLOAD", 1),
    ):
        net = Loopback(
            seed, query, scheme=scheme, log_bytes=log, brokers=brokers, boxes=boxes, repository=repository
        )
        run(net, 40, faults, restart)


def test_a_node_that_has_found_a_parent_lets_those_ask_again_whose_requests_were_lost() -> None:
    broker = node.Node()
    for link in (1, 2, 3):
        broker.add_child(link, is_client=True)
    assert broker.take(1, ClientRequest(7, b"")) == []  # there is no parent yet
    sends = broker.set_parent(10, "server")
    assert [type(send.frame) for send in sends] == [Resume, Again] and sends[1].link == 1
    (passed,) = broker.take(2, ClientRequest(8, b""))
    assert passed.link == 10
    broker.take(3, ClientRequest(9, b""))
    broker.drop_child(3)
    broker.drop_parent()
    sends = broker.set_parent(11, "server")
    assert [type(send.frame) for send in sends] == [Resume, Again] and sends[1].link == 2
    assert [type(send.frame) for send in broker.set_parent(12, "server")] == [Resume]
    broker._check()

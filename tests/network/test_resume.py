"""Server, brokers and clients under faults: contents are exact at every watermark, and all get to the end."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.network.loopback import Loopback
from tocsin.network import node, payloads, root
from tocsin.network.wire import MAX_PIECE
from tocsin.reformulate.joins import RelaxedSelections, SemijoinsByTuples, SemijoinsFewest, SemijoinsMerged

SCHEMES = [SemijoinsMerged, SemijoinsByTuples, SemijoinsFewest, RelaxedSelections]
WITHOUT_END = 1 << 40


def run(net: Loopback, steps: int, faults: float, restart: int) -> None:
    for step in range(steps):
        if net.random.random() < 0.6:
            net.change()
        if net.random.random() < faults:
            net.fault()
        if net.random.random() < 0.1:
            net.come_or_go()
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
@pytest.mark.parametrize("made", SCHEMES, ids=[scheme.name for scheme in SCHEMES])
@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    faults=st.sampled_from([0.0, 0.05, 0.3]),
    log=st.sampled_from([WITHOUT_END, 2000]),
    boxes=st.sampled_from([1, 4, 64]),
    brokers=st.integers(0, 8),
    restart=st.sampled_from([-1, -1, 20]),
    piece=st.sampled_from([MAX_PIECE, 300]),
    repository=st.sampled_from([None, 0, 20, WITHOUT_END]),
)
def test_contents_are_exact_at_every_watermark(
    made, seed, faults, log, boxes, brokers, restart, piece, repository
) -> None:
    with (
        patch.object(node, "MAX_PIECE", piece),
        patch.object(root, "MAX_PIECE", piece),
        patch.object(payloads, "LEAST_PAYLOAD", 1),
    ):
        net = Loopback(seed, made, log_bytes=log, brokers=brokers, boxes=boxes, repository=repository)
        run(net, 60, faults, restart)

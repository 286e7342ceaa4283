"""The table of a broker against plain loops."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.model.message import GREATEST, LEAST, Messages, Regions
from tocsin.network import routing
from tocsin.network.batches import MessageBatch
from tocsin.network.fanout import split
from tocsin.network.routing import RoutingTable


def drawn_boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    ends = np.sort(rng.integers(0, 12, (count, 2, 2, 2)), axis=3)
    ends[rng.random(ends.shape) < 0.1] = GREATEST
    ends[..., 0][rng.random(ends.shape[:-1]) < 0.1] = LEAST
    return np.sort(ends, axis=3).reshape(count, 2, 4)


def drawn_batch(rng: np.random.Generator, count: int) -> MessageBatch:
    start = np.append(0, np.cumsum(rng.integers(1, 4, count)))
    numbers, sides = np.arange(count), np.zeros(count, np.int8)
    regions = Regions(start, drawn_boxes(rng, start[-1]))
    messages = Messages(numbers, numbers, sides, sides, numbers, numbers, numbers, regions)
    bodies = [rng.bytes(rng.integers(0, 9)) for _ in range(count)]
    batch = MessageBatch.of(messages, 0, bodies)
    return MessageBatch(messages, rng.integers(0, 2, count), batch.ends, batch.data)


def wanted(table: dict[int, list], batch: MessageBatch) -> dict[int, list[int]]:
    """By link the messages with a box that meets one of the link's, by plain loops."""
    regions, out = batch.messages.regions, {}
    for link, own in table.items():
        mine = []
        for m in range(len(batch)):
            boxes = regions.boxes[regions.start[m] : regions.start[m + 1]].reshape(-1, 8)
            if any(
                form == batch.form[m]
                and np.all(box[0::2] <= other[1::2])
                and np.all(box[1::2] >= other[0::2])
                for form, other in own
                for box in boxes
            ):
                mine.append(m)
        if mine:
            out[link] = mine
    return out


@pytest.mark.property
@settings(deadline=None)
@given(seed=st.integers(0, 2**32), few=st.sampled_from([0, 5, 1024]), most=st.sampled_from([300, 1 << 20]))
def test_links_get_what_they_want(seed, few, most) -> None:
    rng = np.random.default_rng(seed)
    table, plain = RoutingTable(), {}
    with patch.object(routing, "_FEW", few), patch.object(routing, "_PAIRS", 4):
        for _ in range(8):
            link, count = int(rng.integers(0, 12)) * 7, int(rng.integers(0, 30))
            if rng.random() < 0.3:
                assert table.remove(link) == len(plain.pop(link, []))
            elif rng.random() < 0.2 and plain.get(link):
                form, box = plain[link][0]
                same = [pair for pair in plain[link] if pair[0] == form and np.array_equal(pair[1], box)]
                assert table.remove_points(link, np.array([form]), box.reshape(1, 2, 4)) == len(same)
                plain[link] = [pair for pair in plain[link] if not any(pair is one for one in same)]
            else:
                forms, boxes = rng.integers(0, 2, count), drawn_boxes(rng, count)
                table.enter(link, forms, boxes)
                plain.setdefault(link, []).extend(zip(forms.tolist(), boxes.reshape(-1, 8), strict=True))
            table._check()
            batch = drawn_batch(rng, int(rng.integers(0, 9)))
            expected = wanted(plain, batch)
            assert {link: found.tolist() for link, found in table.route(batch)} == expected
            routed = table.routed(batch)
            for link, parts in zip(routed.links.tolist(), split(batch, routed, most), strict=True):
                got = MessageBatch.concat([part.open() for part in parts])
                assert got.to_bytes() == batch.take(expected[link]).to_bytes()
        assert len(table) == sum(map(len, plain.values()))

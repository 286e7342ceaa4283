"""Contents kept from messages alone, for every method, against brute force."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rank.paint_oracle import Plane, Range, changes, moved, plane, planes, ranges, space, top, unique
from tocsin.model.message import Messages
from tocsin.rank.points import ABSENT
from tocsin.reformulate.contents import TopkContents
from tocsin.reformulate.topk import PaintTopk, RelaxTopk, TopkServer, UnicastTopk, ranges_in

KS = [1, 3, 14]


def method(name: str, some: list[Range]) -> TopkServer:
    ends = ([s[0] for s in some], [s[1] for s in some])
    kind, _, eps = name.partition(" ")
    match kind:
        case "unicast":
            return UnicastTopk(KS, [ends] * len(KS))
        case "relax":
            return RelaxTopk(KS)
        case "sparse":
            return PaintTopk(KS, eps=float(eps or 0), spaces=[space(some)] * len(KS))
    return PaintTopk(KS, eps=float(eps or 0))


Clients = dict[tuple[int, int], TopkContents]


def start(server: TopkServer, objects: Plane, some: list[Range]) -> Clients:
    """The objects, and a client per subscription and k."""
    server.load(list(objects), [x for x, _ in objects.values()], [y for _, y in objects.values()])
    return {(s, k): server.contents(*some[s], k) for s in range(len(some)) for k in KS}


def deliver(messages: Messages, clients: Clients, some: list[Range], rng: np.random.Generator) -> None:
    """To whom they are meant for; the network shuffles those of an event, and sends some twice."""
    messages._check()
    for (s, k), client in clients.items():
        own = messages.take(messages.received_by(s, [some[s]], KS.index(k)))
        for seq in np.unique(own.seq):
            event = np.flatnonzero(own.seq == seq)
            twice = rng.choice(event, int(rng.integers(len(event) + 1)))
            client.apply(own.take(rng.permutation(np.concatenate([event, twice]))).in_order())


def same(clients: Clients, objects: Plane, some: list[Range]) -> None:
    for (s, k), client in clients.items():
        assert client.content() == top(objects, some[s], k)


METHODS = ["dense", "sparse", "dense 0.4", "dense 1", "sparse 0.4", "sparse 1", "unicast", "relax"]


@pytest.mark.parametrize("name", METHODS)
@given(drawn=planes, made=changes, some=ranges, seed=st.integers(0, 99))
def test_contents_after_every_event(name: str, drawn, made, some: list[Range], seed: int) -> None:
    """Ties in x, deletes, x and y changed together, more k than objects; the network shuffles."""
    objects, server, rng = plane(drawn), method(name, some), np.random.default_rng(seed)
    clients = start(server, objects, some)
    for i, x, y in made:
        objects = moved(objects, i, x, unique(i, y))
        deliver(server.publish([i], [x], [unique(i, y)]), clients, some, rng)
        same(clients, objects, some)
    server.points._check()
    assert server.counters.events == len(made)


@pytest.mark.parametrize("name", ["dense", "sparse", "sparse 0.4"])
@given(drawn=planes, batches=st.lists(changes, max_size=4), some=ranges, seed=st.integers(0, 99))
def test_contents_after_every_batch(name: str, drawn, batches, some: list[Range], seed: int) -> None:
    objects, server, rng = plane(drawn), method(name, some), np.random.default_rng(seed)
    assert isinstance(server, PaintTopk)
    clients = start(server, objects, some)
    for batch in batches:
        rows = [(i, x, unique(i, y)) for i, x, y in batch]
        for i, x, y in rows:
            objects = moved(objects, i, x, y)
        deliver(server.publish_batch(*zip(*rows, strict=True)), clients, some, rng)
        same(clients, objects, some)
    server.points._check()


@pytest.mark.parametrize("name", ["dense", "sparse", "sparse 0.4"])
@given(seed=st.integers(0, 10_000), some=ranges)
def test_in_a_batch_objects_take_over_the_y_of_others(name: str, seed: int, some: list[Range]) -> None:
    """Few values of y, passed on and exchanged, by inserted and deleted objects too; x changes as well."""
    rng = np.random.default_rng(seed)
    objects: Plane = {i: (int(rng.integers(5)), i) for i in range(4)}
    server = method(name, some)
    assert isinstance(server, PaintTopk)
    clients = start(server, objects, some)
    for _ in range(3):
        moved_now = np.flatnonzero(rng.random(6) < 0.7).tolist()
        kept = [y for i, (_, y) in objects.items() if i not in moved_now]
        new = rng.permutation([y for y in range(8) if y not in kept])[: len(moved_now)].tolist()
        new = [ABSENT if rng.random() < 0.2 else y for y in new]
        x = [
            objects[i][0] if i in objects and rng.random() < 0.6 else int(rng.integers(5)) for i in moved_now
        ]
        for i, to_x, to_y in zip(moved_now, x, new, strict=True):
            objects = moved(objects, i, to_x, to_y)
        deliver(server.publish_batch(moved_now, x, new), clients, some, rng)
        same(clients, objects, some)
        server.points._check()


def test_ties_of_y_are_refused_when_objects_are_loaded() -> None:
    with pytest.raises(ValueError, match="two objects have y = 5"):
        PaintTopk([1]).load([0, 1], [1, 2], [5, 5])


def test_the_papers_batch_would_end_with_wrong_contents() -> None:
    """k = 2, one range with u:1, g:5, e:7, d:10; d falls to 3, g rises to 20, u to 15."""
    server = PaintTopk([2])
    server.load([0, 1, 2, 3], [5] * 4, [1, 5, 7, 10])
    client = server.contents(0, 9, 2)
    messages = server.publish_batch([3, 1, 0], [5] * 3, [3, 20, 15])
    client.apply(messages.take(messages.received_by(0, [(0, 9)])))
    assert client.content() == [(3, 3), (7, 2)]


def test_a_batch_sends_less_than_its_changes_one_by_one() -> None:
    """2,000 changes of 400 objects: published one by one, coalesced, and as a batch."""
    rng = np.random.default_rng(5)
    x, y = rng.integers(0, 1000, 400), rng.permutation(400) * 1000
    moved_now, new = rng.integers(0, 400, 2000), rng.integers(0, 400, 2000) * 1000 + 1 + np.arange(2000) % 999
    ends = np.sort(rng.integers(0, 1000, (3000, 2)), axis=1).T
    subscribed = ranges_in(*ends)
    at = {int(i): n for n, i in enumerate(moved_now)}  # the last change of each
    last = np.array(sorted(at.values()))

    def received_by_all(messages: Messages) -> int:
        return len(subscribed.find(messages.regions.boxes[:, 0])[0])

    received, contents = [], []
    for way in ("online", "coalesce", "batch"):
        server = PaintTopk([5], spaces=[subscribed])
        server.load(np.arange(400), x, y)
        if way == "online":
            messages = server.publish(moved_now, x[moved_now], new)
        elif way == "coalesce":
            messages = server.publish(moved_now[last], x[moved_now[last]], new[last])
        else:
            messages = server.publish_batch(moved_now, x[moved_now], new)
        received.append(received_by_all(messages))
        contents.append([server.content(a, b, 5) for a, b in ends.T[:50].tolist()])
    assert received[0] > 2 * received[1] and received[1] > 1.1 * received[2]
    assert contents[0] == contents[1] == contents[2]


# -- how few tiles there can be ----------------------------------------------------------------------------


def fewest(wanted: frozenset[Range], others: frozenset[Range]) -> int:
    """The least number of rectangles that hold all wanted points and none of the others, by trying all."""
    ls, rs = sorted({p[0] for p in wanted}), sorted({p[1] for p in wanted})
    boxes = [(a, b, c, d) for a in ls for b in ls for c in rs for d in rs if a <= b and c <= d]
    held = [frozenset(p for p in wanted if b[0] <= p[0] <= b[1] and b[2] <= p[1] <= b[3]) for b in boxes]
    bad = [any(b[0] <= p[0] <= b[1] and b[2] <= p[1] <= b[3] for p in others) for b in boxes]
    sets = {h for h, wrong in zip(held, bad, strict=True) if h and not wrong}
    sets = {h for h in sets if not any(h < other for other in sets)}

    @cache
    def cover(rest: frozenset[Range]) -> int:
        if not rest:
            return 0
        first = min(rest)
        return 1 + min(cover(rest - h) for h in sets if first in h)

    return cover(wanted)


@pytest.mark.parametrize("dense", [True, False])
@given(drawn=planes, made=changes, some=ranges, k=st.integers(1, 3))
def test_few_tiles(dense: bool, drawn, made, some: list[Range], k: int) -> None:
    """Dense: as few as can be, if every point of the plane may be a subscription. Sparse: at most twice."""
    objects = plane(drawn)
    if dense:
        objects = {i: (x % 4, y) for i, (x, y) in objects.items() if i < 7}
        some = [(a, b) for a in range(-1, 5) for b in range(a, 5)]
    everyone = frozenset(some)
    server = PaintTopk([k], spaces=None if dense else [space(some)])
    server.load(list(objects), [x for x, _ in objects.values()], [y for _, y in objects.values()])
    for i, x, y in made[:3]:
        x = objects[i][0] if i in objects else x % 4 if dense else x
        messages = server.publish([i], [x], [unique(i, y)])
        objects = moved(objects, i, x, unique(i, y))
        for number in set(messages.row.tolist()):
            own = messages.take(messages.row == number).regions
            wanted = frozenset(s for s in everyone if own.contain([s]).any())
            if not dense:
                assert wanted and len(own) <= 2 * fewest(wanted, everyone - wanted)
            elif wanted:
                held = np.stack([own.contain([s]) for s in wanted])
                assert held.sum() == len(wanted), "tiles overlap"
                assert held.any(axis=0).sum() == fewest(wanted, everyone - wanted)


def test_an_event_that_comes_too_late_is_refused() -> None:
    server = PaintTopk([1])
    client = server.contents(0, 9, 1)
    one, two = server.publish([0], [5], [3]), server.publish([0], [5], [4])
    client.apply(two)
    with pytest.raises(ValueError, match="event 1 comes after event 2"):
        client.apply(one)
    assert client.content() == [(4, 0)]

"""CN+: a payload crosses a link once; later messages about the same row carry only its id.

    directory    payload id -> the neighbours that acknowledged it; those get the id alone
    repository   payload id -> payload; who has dropped it fetches it from the source that a message names

Both are soft state with a limit, least recently used out first. A broker never sends an id alone to a
neighbour that has not acknowledged the payload in its present incarnation, so brokers that know nothing of
this, and brokers that were restarted, get payloads by themselves. If a broker needs a payload, for its own
subscribers or for a neighbour, and has it not, it fetches it: from the source, or from the server, which has
all. The source it names to others is itself if its repository has the payload once everything is done.

`PayloadNode` (`payload_node.py`) is one broker, without I/O; real brokers use it too. `PayloadNetwork` is a
network of them over a network with a fixed tree; a kernel does there what nodes do.

A payload is dropped only when the repository is full: dropped as soon as all neighbours have it, as the paper
suggests, it has to be fetched again. J08, section 5 and appendix H; NETWORK.md, 10.5. Ours: when a
payload is requested again, the server refers to the broker that got it last (`PayloadProviders`), since
brokers next to it see more payloads than a small repository holds; `refers=False` is the paper's.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.errors import UsageError
from tocsin.model.columns import Index, longer
from tocsin.model.message import MessageKind, Messages
from tocsin.network._kernels.payloads import (
    Lru,
    PayloadBatch,
    PayloadState,
    PayloadTraffic,
    Providers,
    deliver_payloads,
    mark_receiving,
)
from tocsin.network.base import Delivery, Links, Network, boxes_of
from tocsin.network.can import CanFixed
from tocsin.network.payload_node import DIRECTORY
from tocsin.network.placement import BrokerMembers

__all__ = ["PayloadNetwork"]

ID_BYTES, REQUEST_BYTES, ANSWER_BYTES = 16, 24, 8


class PayloadNetwork(Network):
    """Payload caching over a network with a fixed tree.

    The sizes of messages include `payload` bytes per row; ids are added. Rows of ROW, EXPOSE and JOINED have
    payloads. `plain` brokers know nothing of caching. Acknowledgements travel with other traffic. `detours`
    are requests that were not answered with the payload: refusals, and referrals by the server.
    """

    name: ClassVar[str] = "cn+"

    def __init__(
        self,
        brokers: int = 1,
        planes: int = 2,
        inner: Network | None = None,
        *,
        payload: int = 100,
        repository: int = 400,
        directory: int = DIRECTORY,
        refers: bool = True,
    ) -> None:
        self.inner = inner if inner is not None else CanFixed(brokers, planes)
        if self.inner.parents() is None:
            raise UsageError(f"payloads cannot be cached over {self.inner.name}", hint="take a fixed tree")
        if min(repository, directory, payload) < 0:
            raise UsageError(
                f"a payload of {payload} bytes, {repository} and {directory} entries",
                hint="limits and sizes are at least 0",
            )
        self.planes, self.payload = self.inner.planes, payload
        self._limits, self.refers = (repository, directory), refers
        self._ids: dict[tuple[int, int], int] = {}
        count = len(self.inner._live)
        self._is_plus = np.ones(count, np.bool_)
        self._state = self._new_state(count, 0)
        self.fetches = self.fetches_from_server = self.detours = self._next_id = 0
        self._bounds: tuple[Any, NDArray[np.int64]] | None = None

    # -- all but messages is the inner network's ------------------------------------------------------

    @property
    def placement(self) -> Any:  # type: ignore[override]
        return self.inner.placement

    @property
    def brokers(self) -> Index:
        return self.inner.brokers

    @property
    def _live(self) -> NDArray[np.bool_]:  # type: ignore[override]
        return self.inner._live

    @property
    def server(self) -> int:
        return self.inner.server

    def parents(self) -> Index | None:
        return self.inner.parents()

    def add_broker(self) -> int:
        broker = self.inner.add_broker()
        if broker == len(self._is_plus):
            self._is_plus = np.append(self._is_plus, True)
            self._state = self._grown(broker + 1, len(self._state.acked))
        return broker

    def remove_broker(self, broker: int) -> None:
        self.inner.remove_broker(broker)
        self.restart(broker)

    def subscribe(self, slots: Index, points: ArrayLike, at: ArrayLike | None = None) -> Index:
        return self.inner.subscribe(slots, points, at)

    def unsubscribe(self, slots: Index) -> None:
        self.inner.unsubscribe(slots)

    # -- payloads -----------------------------------------------------------------------------------

    def make_plain(self, brokers: ArrayLike) -> None:
        """Brokers that forward what they get, and acknowledge nothing."""
        for broker in np.atleast_1d(np.asarray(brokers, np.int64)).tolist():
            self.restart(broker)
            self._is_plus[broker] = False

    def restart_all(self) -> None:
        """Every broker loses its soft state."""
        for broker in range(len(self._is_plus)):
            self.restart(broker)
        self.fetches = self.fetches_from_server = self.detours = 0

    def restart(self, broker: int) -> None:
        """A broker loses its soft state."""
        state = self._state
        for lru in (state.repository, state.directory):
            lru.slot[:, broker], lru.ends[broker] = -1, (-1, -1, 0)
        state.incarnation[broker] += 1
        state.acked[:, state.parent == broker] = 0
        state.providers.broker[state.providers.broker == broker] = -1

    def renew(self, side: int, rows: ArrayLike) -> None:
        """Rows whose payloads have changed: they get new ids."""
        for row in np.atleast_1d(np.asarray(rows, np.int64)).tolist():
            if self._ids.pop((side, row), None) is not None:
                self._ids[side, row] = self._next_id
                self._next_id += 1

    def _payloads(self, messages: Messages) -> tuple[Index, Index]:
        """By message, where its payloads begin; and their numbers."""
        kind, side = messages.kind, messages.side.astype(np.int64)
        joined = kind == MessageKind.JOINED
        single = (kind == MessageKind.ROW) | (kind == MessageKind.EXPOSE)
        count = single + 2 * joined
        start = np.concatenate([[0], np.cumsum(count)])
        sides, rows = np.empty(start[-1], np.int64), np.empty(start[-1], np.int64)
        sides[start[:-1][single]], rows[start[:-1][single]] = side[single], messages.row[single]
        sides[start[:-1][joined]], rows[start[:-1][joined]] = 0, messages.row[joined]
        sides[start[:-1][joined] + 1], rows[start[:-1][joined] + 1] = 1, messages.partner[joined]
        pairs, which = np.unique(np.stack([sides, rows], axis=1), axis=0, return_inverse=True)
        numbers = np.array([self._number(side, row) for side, row in pairs.tolist()], np.int64)
        if self._next_id > len(self._state.acked):
            self._state = self._grown(len(self._is_plus), max(1024, 2 * self._next_id))
        return start, numbers[which.reshape(-1)]

    def _number(self, side: int, row: int) -> int:
        number = self._ids.setdefault((side, row), self._next_id)
        self._next_id += number == self._next_id
        return number

    # -- messages -----------------------------------------------------------------------------------

    def deliver(self, messages: Messages, sizes: ArrayLike) -> Delivery:
        """As the inner network, with fewer bytes; `depths` include the round trips of fetches."""
        plain = self.inner.deliver(messages, sizes)
        if messages.recipients is not None:
            return plain
        bytes_ = np.broadcast_to(np.asarray(sizes, np.int64), len(messages))
        start, numbers = self._payloads(messages)
        count = np.diff(start)
        light = bytes_ - count * (self.payload - ID_BYTES)
        if np.any(bytes_ < count * self.payload):
            raise UsageError("a message is smaller than its payloads", hint="sizes include payloads")
        self._follow_tree()
        local, brokers = np.zeros_like(plain.reached), len(self._live)
        members, regions = self.placement.members(brokers), messages.regions
        bounds = self._bounds_of(members)
        mark_receiving(boxes_of(regions), regions.start, plain.reached, members, bounds, local)
        sizes_of = np.array([self.payload, REQUEST_BYTES, ANSWER_BYTES + ID_BYTES], np.int64)
        batch = PayloadBatch(start, numbers, light, plain.reached, local, sizes_of)
        out = PayloadTraffic(
            np.zeros((len(messages), 6), np.int64),
            np.zeros((brokers, brokers), np.int64),
            np.zeros((2, brokers), np.int64),
            np.zeros((2, brokers), np.int64),
            np.zeros(brokers, np.int64),
        )
        deliver_payloads(self._state, batch, out)
        hops, gateways, depths, fetches, far, detours = np.ascontiguousarray(out.counts.T)
        self.fetches += int(fetches.sum())
        self.detours += int(detours.sum())
        self.fetches_from_server += int(far.sum())
        sender, receiver = np.nonzero(out.links)
        links = Links(sender, receiver, out.links[sender, receiver])
        return Delivery(hops, gateways, depths, plain.reached, links)

    def _bounds_of(self, members: BrokerMembers) -> NDArray[np.int64]:
        """By broker and dimension, the least and the greatest of its points; 0 if it has none."""
        if self._bounds is None or self._bounds[0] is not members:
            bounds = np.zeros((len(members.start) - 1, members.point.shape[1], 2), np.int64)
            some = np.flatnonzero(np.diff(members.start))
            if len(some):
                bounds[some, :, 0] = np.minimum.reduceat(members.point, members.start[some])
                bounds[some, :, 1] = np.maximum.reduceat(members.point, members.start[some])
            self._bounds = members, bounds
        return self._bounds[1]

    # -- state --------------------------------------------------------------------------------------

    def _new_state(self, brokers: int, payloads: int) -> PayloadState:
        none = np.zeros(0, np.int64)
        repository, directory = (_new_lru(brokers, payloads, limit) for limit in self._limits)
        acked, born = np.zeros((payloads, brokers), np.int32), np.ones(brokers, np.int32)
        tree = np.full(brokers, -1), none, none, none
        known = payloads if self.refers else 0
        providers = Providers(
            np.full(known, -1, np.int32), np.zeros(known, np.int64), np.zeros(brokers, np.int64)
        )
        return PayloadState(repository, directory, providers, acked, born, self._is_plus, *tree)

    def _grown(self, brokers: int, payloads: int) -> PayloadState:
        """With space for more brokers or payloads."""
        old, new = self._state, self._new_state(brokers, payloads)
        for before, after in ((old.repository, new.repository), (old.directory, new.directory)):
            known, had = before.slot.shape
            after.slot[:known, :had] = before.slot
            for name in ("payload", "newer", "older", "ends"):
                places = getattr(before, name).shape[1]
                getattr(after, name)[:had, :places] = getattr(before, name)
        for name in Providers._fields:
            known = getattr(old.providers, name)
            getattr(new.providers, name)[: len(known)] = known
        new.acked[: len(old.acked), : old.acked.shape[1]] = old.acked
        new.incarnation[: len(old.incarnation)] = old.incarnation
        parent = longer(old.parent, brokers, -1)
        return new._replace(parent=parent, order=old.order, start=old.start, child=old.child)

    def _follow_tree(self) -> None:
        """Take over the inner network's tree; a broker below another one has acknowledged nothing to it."""
        parents, state, brokers = self.inner.parents(), self._state, len(self._live)
        assert parents is not None
        if np.array_equal(parents, state.parent) and len(state.order) and state.order[0] == self.server:
            return
        state.acked[:, parents != state.parent] = 0
        below = [[] for _ in range(brokers)]  # type: list[list[int]]
        for broker, parent in enumerate(parents.tolist()):
            if parent >= 0 and broker != self.server:
                below[parent].append(broker)
        order = [self.server]
        for broker in order:
            order += below[broker]
        start = np.cumsum([0, *(len(part) for part in below)])
        child = np.array([broker for part in below for broker in part], np.int64)
        self._state = state._replace(
            parent=parents.copy(), order=np.array(order, np.int64), start=start, child=child,
            is_plus=self._is_plus,
        )  # fmt: skip

    def stats(self) -> dict[str, Any]:
        plus = int(self._is_plus[self.brokers].sum())
        found = {"plus": plus, "fetches": self.fetches, "fetches_from_server": self.fetches_from_server}
        found["detours"] = self.detours
        return {**self.inner.stats(), **found, "payloads": len(self._ids)}

    def _check(self) -> None:
        self.inner._check()
        for lru in (self._state.repository, self._state.directory):
            for broker in range(len(lru.ends)):
                assert len(self._is_plus) == len(self._live) == len(lru.ends)
                held = np.flatnonzero(lru.slot[:, broker] >= 0)
                assert len(held) == lru.ends[broker, 2] <= lru.payload.shape[1]
                assert np.array_equal(lru.payload[broker, lru.slot[held, broker]], held)
                at, seen = int(lru.ends[broker, 0]), 0
                while at >= 0:
                    at, seen = int(lru.newer[broker, at]), seen + 1
                assert seen == len(held), "the order of use has all entries once"


def _new_lru(brokers: int, payloads: int, limit: int) -> Lru:
    places = (brokers, min(limit, payloads))
    payload, newer, older = (np.full(places, -1, np.int32) for _ in range(3))
    ends = np.tile(np.array([-1, -1, 0], np.int32), (brokers, 1))
    return Lru(np.full((payloads, brokers), -1, np.int32), payload, newer, older, ends)

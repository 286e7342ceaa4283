"""CN+ over a fixed tree: which links carry a payload, which only its id, and who fetches from whom.

The same rules as `PayloadNode`, for all brokers at once. An entry of a broker's directory is a row of
`acked` restricted to the brokers below it: the incarnation in which each acknowledged the payload.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.compiled.instructions import trailing_zeros
from tocsin.network._kernels.receivers import holds, meets

__all__ = [
    *("Lru", "PayloadBatch", "PayloadState", "PayloadTraffic", "Providers", "deliver_payloads"),
    "mark_receiving",
]

FULL, LIGHT = 1, 0


class Lru(NamedTuple):
    """By broker, payloads in the order of their last use."""

    slot: NDArray[np.int32]  # by payload and broker: where it is, or -1
    payload: NDArray[np.int32]  # by broker and place
    newer: NDArray[np.int32]
    older: NDArray[np.int32]
    ends: NDArray[np.int32]  # by broker: oldest, newest, count


class Providers(NamedTuple):
    """Whom the server gave a payload last: it refers others to them, if they can still have it."""

    broker: NDArray[np.int32]  # by payload, or -1; empty: the server refers nobody
    since: NDArray[np.int64]  # by payload: what that broker had been given before
    given: NDArray[np.int64]  # by broker: payloads it was given, or will get from one it was referred to


class PayloadState(NamedTuple):
    repository: Lru
    directory: Lru
    providers: Providers
    acked: NDArray[np.int32]  # by payload and broker: the incarnation that acknowledged it to the one above
    incarnation: NDArray[np.int32]  # by broker, from 1 on
    is_plus: NDArray[np.bool_]
    parent: NDArray[np.int64]  # by broker; the server is its own
    order: NDArray[np.int64]  # brokers from the server down
    start: NDArray[np.int64]  # by broker: where those below it begin
    child: NDArray[np.int64]


class PayloadBatch(NamedTuple):
    start: NDArray[np.int64]  # by message: its payloads
    payload: NDArray[np.int64]
    light: NDArray[np.int64]  # by message: bytes without payloads
    reached: NDArray[np.uint64]  # by message: brokers
    local: NDArray[np.uint64]  # by message: brokers with a receiver
    bytes: NDArray[np.int64]  # of a payload, of a request, of an answer without its payload


class PayloadTraffic(NamedTuple):
    counts: NDArray[np.int64]  # by message: hops, gateways, sum of their depths; fetches; of
    # these from the server; refusals and referrals
    links: NDArray[np.int64]  # bytes by sender and receiver
    arrived: NDArray[np.int64]  # scratch, by payload of a message and broker: FULL or LIGHT
    source: NDArray[np.int64]  # scratch, by payload of a message and broker: who has it
    depth: NDArray[np.int64]  # scratch, by broker: hops, and round trips of fetches


@kernel(inline=True, allocates=False)
def _has(bits, i):
    return (bits[i >> 6] >> np.uint64(i & 63)) & np.uint64(1) != 0


@kernel(allocates=False)
def _unlink(lru, b, at):
    older, newer = lru.older[b, at], lru.newer[b, at]
    if older >= 0:
        lru.newer[b, older] = newer
    else:
        lru.ends[b, 0] = newer
    if newer >= 0:
        lru.older[b, newer] = older
    else:
        lru.ends[b, 1] = older


@kernel(allocates=False)
def _append(lru, b, at):
    """At the newest end."""
    newest = lru.ends[b, 1]
    lru.older[b, at], lru.newer[b, at] = newest, -1
    if newest >= 0:
        lru.newer[b, newest] = at
    else:
        lru.ends[b, 0] = at
    lru.ends[b, 1] = at


@kernel(allocates=False)
def _touch(lru, b, payload):
    """Whether a broker has a payload, which is then the last used."""
    at = lru.slot[payload, b]
    if at < 0:
        return False
    if lru.ends[b, 1] != at:
        _unlink(lru, b, at)
        _append(lru, b, at)
    return True


@kernel(allocates=False)
def _put(lru, b, payload):
    """Enter a payload that a broker does not have; the one that has to leave for it, or -1."""
    most = lru.payload.shape[1]
    if most == 0:
        return np.int64(payload)
    gone, at = np.int64(-1), lru.ends[b, 2]
    if at == most:
        at = lru.ends[b, 0]
        gone = np.int64(lru.payload[b, at])
        lru.slot[gone, b] = -1
        _unlink(lru, b, at)
    else:
        lru.ends[b, 2] += 1
    lru.payload[b, at] = payload
    lru.slot[payload, b] = at
    _append(lru, b, at)
    return gone


@kernel(allocates=False)
def _keep(lru, b, payload):
    """Have a payload as the last used."""
    if not _touch(lru, b, payload):
        _put(lru, b, payload)


@kernel(allocates=False)
def _give(state, payload, broker):
    """The server gives a payload to a broker, or refers it to one that has it."""
    if len(state.providers.broker) > 0:
        state.providers.broker[payload] = broker
        state.providers.since[payload] = state.providers.given[broker]
        state.providers.given[broker] += 1


@kernel(allocates=False)
def _provider(state, payload, broker):
    """Whom the server refers a broker to, or -1: one that got the payload and not a repository full since."""
    if len(state.providers.broker) == 0:
        return np.int64(-1)
    named = np.int64(state.providers.broker[payload])
    if named < 0 or named == broker or named == state.order[0]:
        return np.int64(-1)
    since = state.providers.given[named] - state.providers.since[payload]
    return named if since <= state.repository.payload.shape[1] else np.int64(-1)


@kernel(inline=True, allocates=False)
def _refused(batch, out, broker, source):
    """A request, and an answer without a payload."""
    out.links[broker, source] += batch.bytes[1]
    out.links[source, broker] += batch.bytes[2]


@kernel(allocates=False)
def _fetch(state, batch, out, m, broker, payload, source):
    """From the source; if it has it no more from the server, or from whom the server refers to. Round trips.

    The broker keeps the payload.
    """
    server, trips = state.order[0], 1
    if source != server and not _touch(state.repository, source, payload):
        _refused(batch, out, broker, source)
        source, trips = server, 2
    if source == server:
        named = _provider(state, payload, broker)
        if named >= 0:
            _refused(batch, out, broker, server)
            trips += 1
            if _touch(state.repository, named, payload):
                source = named
            else:
                _refused(batch, out, broker, named)
                trips += 1
        _give(state, payload, broker)
    out.links[broker, source] += batch.bytes[1]
    out.links[source, broker] += batch.bytes[2] + batch.bytes[0]
    out.counts[m, 3] += 1
    out.counts[m, 4] += source == server
    out.counts[m, 5] += trips - 1
    _keep(state.repository, broker, payload)
    return trips


@kernel(allocates=False)
def _open_entry(state, broker, payload):
    """The broker's directory has the payload; an entry that leaves takes its acknowledgements along."""
    if not _touch(state.directory, broker, payload):
        gone = _put(state.directory, broker, payload)
        if gone >= 0:
            for i in range(state.start[broker], state.start[broker + 1]):
                state.acked[gone, state.child[i]] = 0


@kernel(allocates=False)
def _forward(state, batch, out, m, p, broker):
    """One payload of a message at a broker; the round trips to fetch it."""
    payload, server = batch.payload[batch.start[m] + p], state.order[0]
    full, source = out.arrived[p, broker], out.source[p, broker]
    is_plus, trips = state.is_plus[broker] and broker != server, 0
    has = broker == server or full == FULL
    if is_plus:
        if full == FULL:
            _keep(state.repository, broker, payload)
        else:
            has = state.repository.slot[payload, broker] >= 0
        if full == LIGHT and _has(batch.local[m], broker):  # what only passes by is not used
            if has:
                _touch(state.repository, broker, payload)
            else:
                trips, has = _fetch(state, batch, out, m, broker, payload, source), True
    if state.start[broker] == state.start[broker + 1]:  # nobody below: its directory is never read
        return trips
    if is_plus or broker == server:
        _open_entry(state, broker, payload)
    for i in range(state.start[broker], state.start[broker + 1]):
        child = state.child[i]
        if not _has(batch.reached[m], child):
            continue
        knows = state.acked[payload, child] == state.incarnation[child]
        if (is_plus or broker == server) and knows and state.directory.slot[payload, broker] >= 0:
            out.arrived[p, child] = LIGHT
            continue
        if not has:
            trips, has = _fetch(state, batch, out, m, broker, payload, source), True
        elif is_plus and full == LIGHT:
            _touch(state.repository, broker, payload)
        out.arrived[p, child] = FULL
        out.links[broker, child] += batch.bytes[0]
        if state.is_plus[child] and (is_plus or broker == server):
            state.acked[payload, child] = state.incarnation[child]
            if broker == server:
                _give(state, payload, child)
    mine = broker == server or (is_plus and state.repository.slot[payload, broker] >= 0)
    for i in range(state.start[broker], state.start[broker + 1]):
        out.source[p, state.child[i]] = broker if mine else source
    return trips


@kernel(allocates=False)
def deliver_payloads(state, batch, out):
    """Messages one after the other, each from the server down."""
    server = state.order[0]
    for m in range(len(batch.light)):
        payloads = batch.start[m + 1] - batch.start[m]
        for p in range(payloads):
            out.arrived[p, server], out.source[p, server] = FULL, server
        out.depth[server] = 0
        for broker in state.order:
            if not _has(batch.reached[m], broker):
                continue
            trips = 0
            for p in range(payloads):
                trips = max(trips, _forward(state, batch, out, m, p, broker))
            if broker != server:
                above = state.parent[broker]
                out.depth[broker] = out.depth[above] + 1 + 2 * trips
                out.links[above, broker] += batch.light[m]
                out.counts[m, 0] += 1
            if _has(batch.local[m], broker):
                out.counts[m, 1] += 1
                out.counts[m, 2] += out.depth[broker]


@kernel(allocates=False)
def mark_receiving(boxes, start, reached, members, bounds, bits):
    """Set the brokers reached that have a subscription in the region.

    `bounds` have, by broker and dimension, the least and the greatest point: a box that holds them all holds
    each, and one that does not meet them none.
    """
    for m in range(len(start) - 1):
        for w in range(reached.shape[1]):
            x = reached[m, w]
            while x:
                broker = (w << 6) + trailing_zeros(x)
                x &= x - np.uint64(1)
                if _receives(boxes, start[m], start[m + 1], members, bounds[broker], broker):
                    bits[m, w] |= np.uint64(1) << np.uint64(broker & 63)


@kernel(allocates=False)
def _receives(boxes, begin, end, members, bound, broker):
    first, last, met = members.start[broker], members.start[broker + 1], False
    if first == last:
        return False
    for b in range(begin, end):
        if meets(boxes[b], bound[:, 0], bound[:, 1]):
            met, whole = True, True
            for k in range(len(bound)):
                whole = whole and boxes[b, k, 0] <= bound[k, 0] and bound[k, 1] <= boxes[b, k, 1]
            if whole:
                return True
    if met:
        for i in range(first, last):
            if holds(boxes, begin, end, members.point[i]):
                return True
    return False

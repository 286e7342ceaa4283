"""CN+ over a fixed tree: which links carry a payload, which only its id, and who fetches from whom.

The same rules as `cnplus.PayloadNode`, for all brokers at once. An entry of a broker's directory is a row of
`acked` restricted to the brokers below it: the incarnation in which each acknowledged the payload.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.compiled import kernel
from tocsin.network._kernels.receivers import holds

__all__ = ["Lru", "PayloadBatch", "PayloadState", "PayloadTraffic", "deliver_payloads", "mark_receiving"]

FULL, LIGHT = 1, 0


class Lru(NamedTuple):
    """By broker, payloads in the order of their last use."""

    slot: NDArray[np.int32]  # by broker and payload: where it is, or -1
    payload: NDArray[np.int32]  # by broker and place
    newer: NDArray[np.int32]
    older: NDArray[np.int32]
    ends: NDArray[np.int32]  # by broker: oldest, newest, count


class PayloadState(NamedTuple):
    repository: Lru
    directory: Lru
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
    counts: NDArray[np.int64]  # by message: hops, gateways, sum of their depths; fetches; from the server
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
    at = lru.slot[b, payload]
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
        lru.slot[b, gone] = -1
        _unlink(lru, b, at)
    else:
        lru.ends[b, 2] += 1
    lru.payload[b, at] = payload
    lru.slot[b, payload] = at
    _append(lru, b, at)
    return gone


@kernel(allocates=False)
def _keep(lru, b, payload):
    """Have a payload as the last used."""
    if not _touch(lru, b, payload):
        _put(lru, b, payload)


@kernel(allocates=False)
def _fetch(state, batch, out, m, broker, payload, source):
    """From the source, or from the server if the source has it no more; the broker keeps it."""
    server = state.order[0]
    if source != server and not _touch(state.repository, source, payload):
        source = server
    out.links[broker, source] += batch.bytes[1]
    out.links[source, broker] += batch.bytes[2] + batch.bytes[0]
    out.counts[m, 3] += 1
    out.counts[m, 4] += source == server
    _keep(state.repository, broker, payload)


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
    """One payload of a message at a broker; whether it had to be fetched."""
    payload, server = batch.payload[batch.start[m] + p], state.order[0]
    full, source = out.arrived[p, broker], out.source[p, broker]
    is_plus, fetched = state.is_plus[broker] and broker != server, False
    has = broker == server or full == FULL
    if is_plus:
        if full == FULL:
            _keep(state.repository, broker, payload)
        else:
            has = state.repository.slot[broker, payload] >= 0
        if full == LIGHT and _has(batch.local[m], broker):  # what only passes by is not used
            if has:
                _touch(state.repository, broker, payload)
            else:
                _fetch(state, batch, out, m, broker, payload, source)
                has = fetched = True
    if is_plus or broker == server:
        _open_entry(state, broker, payload)
    for i in range(state.start[broker], state.start[broker + 1]):
        child = state.child[i]
        if not _has(batch.reached[m], child):
            continue
        knows = state.acked[payload, child] == state.incarnation[child]
        if (is_plus or broker == server) and knows and state.directory.slot[broker, payload] >= 0:
            out.arrived[p, child] = LIGHT
            continue
        if not has:
            _fetch(state, batch, out, m, broker, payload, source)
            has = fetched = True
        elif is_plus and full == LIGHT:
            _touch(state.repository, broker, payload)
        out.arrived[p, child] = FULL
        out.links[broker, child] += batch.bytes[0]
        if state.is_plus[child] and (is_plus or broker == server):
            state.acked[payload, child] = state.incarnation[child]
    mine = broker == server or (is_plus and state.repository.slot[broker, payload] >= 0)
    for i in range(state.start[broker], state.start[broker + 1]):
        out.source[p, state.child[i]] = broker if mine else source
    return fetched


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
            fetched = False
            for p in range(payloads):
                if _forward(state, batch, out, m, p, broker):
                    fetched = True
            if broker != server:
                above = state.parent[broker]
                out.depth[broker] = out.depth[above] + 1 + (2 if fetched else 0)
                out.links[above, broker] += batch.light[m]
                out.counts[m, 0] += 1
            if _has(batch.local[m], broker):
                out.counts[m, 1] += 1
                out.counts[m, 2] += out.depth[broker]


@kernel(allocates=False)
def mark_receiving(boxes, start, reached, members, bits):
    """Set the brokers reached that have a subscription in the region."""
    for m in range(len(start) - 1):
        for broker in range(len(members.start) - 1):
            if not _has(reached[m], broker):
                continue
            for i in range(members.start[broker], members.start[broker + 1]):
                if holds(boxes, start[m], start[m + 1], members.point[i]):
                    bits[m, broker >> 6] |= np.uint64(1) << np.uint64(broker & 63)
                    break

"""What a server sends that writes to each affected subscription, counted without listing anybody.

An event with key b and value a affects the subscriptions with a in their range of A and a joining value of b
in their range of C. S does not change, so for each key the affected of every a are sums of differences:

    affected by a
        ___             + 1 at the low end of the range of A of each subscription with a joining value
      _|   |__   _      - 1 after its high end
    _|        |_| |_    one pass over all subscriptions per key, one look-up per event

Messages of an event to one subscription share a packet, so there is one hop per affected subscription.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.lab.simulate._kernels import add_affected
from tocsin.lab.simulate.workload import DOMAIN, Workload
from tocsin.model.columns import Index

__all__ = ["Affected", "count_affected"]


class Affected(NamedTuple):
    """By event."""

    subscriptions: Index
    rows: Index  # joined rows of all of them
    far: Index  # links to all of them
    rows_far: Index  # links of all their joined rows


def count_affected(work: Workload, distance: NDArray[np.int64]) -> Affected:
    """Who is affected by each event, with the links from the server to each subscription."""
    out = np.zeros((4, len(work.event_key)), np.int64)
    points = np.ascontiguousarray(work.points.reshape(-1, 4))
    for key in np.unique(work.event_key):
        values = np.sort(work.s_value[work.s_key == key])
        if not len(values):
            continue
        upto = np.concatenate([[0], np.searchsorted(values, np.arange(DOMAIN), "right")])
        steps = np.zeros((4, DOMAIN + 1), np.int64)
        add_affected(points, upto, distance, steps)
        mine = np.flatnonzero(work.event_key == key)
        out[:, mine] = np.cumsum(steps, axis=1)[:, work.event_value[mine]]
    return Affected(*out)

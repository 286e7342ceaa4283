"""First rows of groups, after others, and of joins."""

from __future__ import annotations

import numpy as np

from tocsin.group.scan import GroupScan
from tocsin.model.columns import Index, Mask

__all__ = ["RankedRoom"]


class RankedRoom(GroupScan):
    """Subscriptions of the shape `ranked`, by slot."""

    def has(self, slots: Index) -> Mask:
        return np.array([slot in self._plans for slot in slots.tolist()], np.bool_)

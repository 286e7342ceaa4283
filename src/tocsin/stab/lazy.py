"""The lazy way to keep a stabbing partition small: sort and sweep again when it may have grown too large.

An interval joins a group where it fits, else it opens one; when there are more than (1 + eps) times as many
groups as there must be for all we know, all intervals are partitioned anew. Little to keep up with each
update, but a rebuild costs O(n log n), and there may be one in every eps * tau updates.

>>> lazy = LazyPartition()
>>> lazy.insert([0, 1, 2], [1, 3, 8], [5, 9, 9]).after.tolist()
[0, 0, 1]
>>> lazy.points().tolist()
[5, 9]
>>> moves = lazy.remove([2])
>>> moves.id.tolist(), moves.before.tolist(), moves.after.tolist()
([2], [1], [-1])

T07, section 4.2.3, "a simple strategy", with all its refinements; `base.py` says what differs.
"""

from __future__ import annotations

from tocsin.stab.base import Maintained, PartitionConfig

__all__ = ["LazyPartition"]


class LazyPartition(Maintained):
    """At most (1 + eps) * tau groups; O(log groups) for an update, O(n log n) for a rebuild."""

    def __init__(self, config: PartitionConfig | None = None) -> None:
        super().__init__(config or PartitionConfig(), tree=False)

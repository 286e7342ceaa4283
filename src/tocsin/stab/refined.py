"""The refined way to keep a stabbing partition small: a rebuild asks a tree, group by group.

One tree has all intervals by left end, and each node the least right end below it. The least partition is
then found point by point: the next point is the least right end among intervals that begin after the last
one, O(log n) each. Since an interval always joins the *first* core that does not end before it, the groups of
the last rebuild are stretches of that tree, as the new ones will be:

    left ends     . . . .  .   . . .   .  . .  .  .
    old groups    |---- 4 ----| |------ 7 -----|          3: opened since, its members are handled singly
    new groups    |-- 4 --| |------ 7 -----| |- 3 -|      only ids of stretches that change name are touched

So a rebuild costs O(tau log n), plus the updates since, plus the ids that move: O(log n / eps) amortised per
update, and the moves.

>>> refined = RefinedPartition()
>>> refined.insert([0, 1, 2], [1, 3, 8], [5, 9, 9]).after.tolist()
[0, 0, 1]
>>> refined.insert([7], [6], [7]).after.tolist(), refined.points().tolist()
([2], [5, 7, 9])

T07, theorem 13, which leaves the algorithm to the paper of 2006. There each group has its own tree, each old
group is split once and the parts are joined; but parts of several groups interleave by left end and cannot be
joined in O(log n). With one tree nothing is split or joined.
"""

from __future__ import annotations

from tocsin.stab.base import Maintained, PartitionConfig

__all__ = ["RefinedPartition"]


class RefinedPartition(Maintained):
    """At most (1 + eps) * tau groups; O(log n / eps) amortised for an update, plus the ids that move."""

    def __init__(self, config: PartitionConfig | None = None) -> None:
        super().__init__(config or PartitionConfig(), tree=True)

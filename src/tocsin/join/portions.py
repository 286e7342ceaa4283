"""How much a join has in hand at a time.

Candidates are found in portions, and those of a portion are verified before the next is found: a change may
have many more candidates than answers, as where subscriptions say `name LIKE '%x%'` and no more of a table.
"""

from __future__ import annotations

__all__ = ["MOST"]

MOST = 1 << 20  # candidates; a single one of them may have more to itself

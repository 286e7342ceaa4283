"""Named steps of commits, snapshots and deliveries: chaos tests end the process at them.

commit.begin    commit.end                                                    of each group
snapshot.begin  snapshot.file  snapshot.manifest  snapshot.end  snapshot.drop
deliver.begin   deliver.end                                                   to followers
plan.begin      plan.end        send.begin         send.end                   deliveries
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["STEPS", "reached", "watch"]

STEPS = (
    "commit.begin", "commit.end", "snapshot.begin", "snapshot.file", "snapshot.manifest", "snapshot.end",
    "snapshot.drop", "deliver.begin", "deliver.end", "plan.begin", "plan.end", "send.begin", "send.end",
)  # fmt: skip
_watcher: Callable[[str], None] | None = None


def watch(watcher: Callable[[str], None] | None) -> None:
    """Call it at each step."""
    global _watcher
    _watcher = watcher


def reached(step: str) -> None:
    """A step is reached."""
    if _watcher is not None:
        _watcher(step)

"""What a core counts: changes, deltas, commits, and where its time goes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Counters"]

_WEIGHT = 0.05  # of the last change in the average cost


@dataclass(slots=True)
class Counters:
    """Since the core was opened; `cost_us` is a running average of the engine's time per changed row."""

    changes: int = 0
    deltas: int = 0
    commits: int = 0
    apply_seconds: float = 0.0
    commit_seconds: float = 0.0
    cost_us: float = 0.0

    def applied(self, rows: int, seconds: float) -> None:
        """Changes of so many rows took so long."""
        self.changes += rows
        self.apply_seconds += seconds
        if rows:
            cost = 1e6 * seconds / rows
            weight = min(1.0, _WEIGHT * rows) if self.cost_us else 1.0
            self.cost_us += weight * (cost - self.cost_us)

    def committed(self, deltas: int, seconds: float) -> None:
        """A group is on disk."""
        self.commits += 1
        self.deltas += deltas
        self.commit_seconds += seconds

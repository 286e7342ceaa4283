"""What the demo replays, and where it keeps it.

>>> Script(days=1, subscriptions=9).wanted() == Script(days=2, subscriptions=9).wanted()
True
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tocsin.lab.demo.flights import Change, load_changes
from tocsin.lab.demo.subscriptions import Wanted, draw_subscriptions

__all__ = ["Script", "default_folder", "usual_batches"]


@dataclass(frozen=True)
class Script:
    """What is replayed. The same script gives the same changes, subscriptions and answers."""

    days: int = 2
    subscriptions: int = 2000
    seed: int = 0
    batches: int = 20

    def changes(self) -> list[Change]:
        return load_changes(self.days)

    def wanted(self) -> list[Wanted]:
        return draw_subscriptions(self.subscriptions, self.seed, self.days)


def usual_batches(days: int) -> int:
    """In how many batches some days are replayed: few days in small ones, to watch; many days in large ones.

    >>> usual_batches(2), usual_batches(30)
    (20, 10)
    """
    return 20 if days <= 2 else 10


def default_folder() -> Path:
    """Where the demo keeps its files unless told otherwise: the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tocsin" / "demo"

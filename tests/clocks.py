"""A clock for engines that goes on when a test says so."""

from __future__ import annotations

from datetime import datetime, timedelta


class Clock:
    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **span: float) -> None:
        """Go on by a timedelta's arguments."""
        self.now += timedelta(**span)

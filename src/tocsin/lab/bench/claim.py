"""What a benchmark claims: a measured value, and the bar it has to reach.

>>> print(Claim("TOWER: HEEB / OPT", 0.999, at_least=0.99))
TOWER: HEEB / OPT: 0.999 (at least 0.99): holds
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Claim"]


@dataclass(frozen=True)
class Claim:
    """A value, its unit, and the least or the most that it may be."""

    name: str
    value: float
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None

    @property
    def met(self) -> bool:
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)

    def to_dict(self) -> dict[str, Any]:
        bar = {"at_least": self.at_least} if self.at_most is None else {"at_most": self.at_most}
        unit = {"unit": self.unit} if self.unit else {}
        return {"claim": self.name, "value": self.value, **unit, **bar, "met": self.met}

    def __str__(self) -> str:
        limit = f"at least {self.at_least:,g}" if self.at_most is None else f"at most {self.at_most:,g}"
        verdict = "holds" if self.met else "DOES NOT HOLD"
        return f"{self.name}: {self.value:,.4g} {self.unit}".rstrip() + f" ({limit}): {verdict}"

"""What the demo tells at the end, as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["Summary"]


@dataclass(frozen=True)
class Summary:
    """Everything worth knowing about one run. Times and rates are of this run, deltas of the whole replay."""

    folder: str
    days: int
    subscriptions: dict[str, int]  # by shape
    changes: int
    resumed_after: int  # batches that an earlier run had finished
    batches: int
    seconds: float
    changes_per_second: float | None
    changes_per_second_later: float | None  # without the first batch, which takes the subscriptions in
    latency_p50: float | None
    latency_p99: float | None
    deltas: dict[str, int]  # by shape
    dead_letters: int
    samples: tuple[str, ...]
    checked: int
    right: int
    wrong: tuple[int, ...]
    checksum: str
    total_seconds: float

    @property
    def ok(self) -> bool:
        return not self.wrong and self.checked > 0 and not self.dead_letters

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ok": self.ok}

    def show(self, console: Console) -> None:
        table = Table("shape", "subscriptions", "deltas", box=None, pad_edge=False, header_style="bold")
        for column in table.columns[1:]:
            column.justify = "right"
        for shape, count in self.subscriptions.items():
            table.add_row(shape, f"{count:,}", f"{self.deltas.get(shape, 0):,}")
        table.add_row(
            "all", f"{sum(self.subscriptions.values()):,}", f"{sum(self.deltas.values()):,}", style="bold"
        )
        console.print(table)
        console.print()
        for line in self._lines():
            console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _lines(self) -> list[str]:
        lines = []
        if self.resumed_after:
            lines.append(f"resumed after {self.resumed_after} batches of an earlier run")
        if self.changes_per_second is not None:
            later = f" ({self.changes_per_second_later:,.0f} after the first)" if self.batches > 1 else ""
            lines += [
                f"{self.changes:,} changes in {self.batches} micro-batches, {self.seconds:.1f} s: "
                f"{self.changes_per_second:,.0f} changes/s{later}",
                f"latency of a micro-batch: p50 {self.latency_p50:.2f} s, p99 {self.latency_p99:.2f} s",
            ]
        if self.dead_letters:
            lines.append(f"{self.dead_letters} changes were refused: see {self.folder}/dead_letters")
        lines += [
            "",
            "five of the deltas, in plain words:"
            if len(self.samples) == 5
            else "some deltas, in plain words:",
        ]
        lines += [f"  {text}" for text in self.samples]
        lines += ["", f"contents checked against the reference: {self.right} of {self.checked}"]
        if self.wrong:
            lines.append(f"WRONG: subscriptions {', '.join(map(str, self.wrong))}")
        lines += [f"checksum of all contents: {self.checksum}", f"{self.total_seconds:.0f} s in all"]
        return lines

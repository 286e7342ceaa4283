"""`tocsin warmup`: compile all kernels, with a progress bar."""

from __future__ import annotations

from tocsin.commands.progress import Display
from tocsin.warmup import WarmUp, rehearsals, run

__all__ = ["warm_up"]


def warm_up(workers: int | None = None) -> WarmUp:
    """Rehearse everything; show how many rehearsals are done, and how many kernels they compiled."""
    with Display("compiling kernels", len(rehearsals()), "rehearsals", rate=False) as display:
        return run(
            lambda done, _all, name, kernels: display.show(done, f"{kernels:,} kernels", f"last: {name}"),
            workers=workers,
        )

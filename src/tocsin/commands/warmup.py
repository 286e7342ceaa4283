"""`tocsin warmup`: compile all kernels, with a progress bar."""

from __future__ import annotations

from tocsin.commands.progress import Display
from tocsin.warmup import WarmUp, rehearsals, run

__all__ = ["warm_up"]


def warm_up(workers: int | None = None) -> WarmUp:
    """Rehearse everything; show which rehearsals are done."""
    with Display("compiling kernels", len(rehearsals()), "rehearsals") as display:
        return run(lambda done, _all, name: display.show(done, name), workers=workers)

"""`tocsin warmup`: compile all kernels, with a progress bar; archive Spark's classes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tocsin.commands.progress import Display
from tocsin.errors import UsageError
from tocsin.warmup import WarmUp, rehearsals, run

__all__ = ["archive_classes", "warm_up"]


def warm_up(workers: int | None = None) -> WarmUp:
    """Rehearse everything; show how many rehearsals are done, and how many kernels they compiled."""
    with Display("compiling kernels", len(rehearsals()), "rehearsals", rate=False) as display:
        return run(
            lambda done, _all, name, kernels: display.show(done, f"{kernels:,} kernels", f"last: {name}"),
            workers=workers,
        )


def archive_classes() -> Path | None:
    """Archive Spark's classes, unless that was done; None if this Java cannot."""
    if find_spec("pyspark") is None:
        raise UsageError("--spark needs the package pyspark", hint="pip install 'tocsin[spark]'")
    from tocsin.spark.classes import make_archive

    with Display("archiving the classes of Spark"):
        return make_archive()

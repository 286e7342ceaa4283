"""A worker of the warm-up: reads names of rehearsals, answers each with the number of compiled kernels."""

from __future__ import annotations

import sys

from tocsin.compiled import compilations
from tocsin.warmup.scenarios import REHEARSALS


def main() -> None:
    """Rehearse until the input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        before = len(compilations())
        REHEARSALS[line.strip()]()
        print(len(compilations()) - before, file=answers, flush=True)


if __name__ == "__main__":
    main()

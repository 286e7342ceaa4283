"""Places of several runs, each from a beginning on: the rows of groups that lie one after the other."""

from __future__ import annotations

import numpy as np

from tocsin.model.columns import Index

__all__ = ["runs"]


def runs(begin: Index, size: Index) -> tuple[Index, Index]:
    """Runs of places, one after the other: (number of the run, place).

    >>> [part.tolist() for part in runs(np.array([7, 2]), np.array([2, 1]))]
    [[0, 0, 1], [7, 8, 2]]
    """
    number = np.repeat(np.arange(len(size)), size)
    return number, np.arange(len(number)) + np.repeat(begin - (np.cumsum(size) - size), size)

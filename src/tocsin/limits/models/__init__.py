"""Models of a stream's join key: which values will arrive, and so what a kept row of its partner is worth.

base.py        what models see and answer: the protocol
recent.py      the last values and likelihoods
stationary.py  keys drawn from one distribution: counts
"""

from tocsin.limits.models.base import (
    Arrivals,
    KeptRows,
    Model,
    ModelBase,
    Steps,
    alpha_of_life,
    grid_of,
)
from tocsin.limits.models.stationary import Stationary

__all__ = ["Arrivals", "KeptRows", "Model", "ModelBase", "Stationary", "Steps", "alpha_of_life", "grid_of"]

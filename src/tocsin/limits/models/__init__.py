"""Models of a stream's join key: which values will arrive, and so what a kept row of its partner is worth.

base.py        what models see and answer: the protocol; the last values and likelihoods
tables.py      H by offset, distance or age, and from control points: pure functions
stationary.py  keys drawn from one distribution: counts
numeric.py     what models of numbers share: when they judge and fit
trend.py       a line with noise
markov.py      a random walk with drift; AR(1)
delay.py       answers that come some time after the partner's row
chooser.py     the one that predicted best
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
from tocsin.limits.models.chooser import Chooser
from tocsin.limits.models.delay import Delay
from tocsin.limits.models.markov import Ar1, Ar1Law, Walk, WalkLaw
from tocsin.limits.models.stationary import Stationary
from tocsin.limits.models.tables import Surface
from tocsin.limits.models.trend import Line, Trend

__all__ = [
    "Ar1",
    "Ar1Law",
    "Arrivals",
    "Chooser",
    "Delay",
    "KeptRows",
    "Line",
    "Model",
    "ModelBase",
    "Stationary",
    "Steps",
    "Surface",
    "Trend",
    "Walk",
    "WalkLaw",
    "alpha_of_life",
    "grid_of",
]

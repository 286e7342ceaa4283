"""Models of a stream's join key: which values will arrive, and so what a kept row of its partner is worth.

base.py        what models see and answer: the protocol
recent.py      the last values and likelihoods
tables.py      H by offset, distance or age: pure functions
surfaces.py    a function of two numbers from 17 x 17 control points
stationary.py  keys drawn from one distribution: counts
numeric.py     what models of numbers share: when they judge and fit
trend.py       a line with noise
walk.py        a random walk with drift
ar1.py         an autoregressive stream
delay.py       answers that come some time after the partner's row
chooser.py     the one that predicted best
"""

from tocsin.limits.models.ar1 import Ar1, Ar1Law
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
from tocsin.limits.models.stationary import Stationary
from tocsin.limits.models.surfaces import Surface
from tocsin.limits.models.trend import Line, Trend
from tocsin.limits.models.walk import Walk, WalkLaw

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

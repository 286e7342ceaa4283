"""Scores: which rows a bounded buffer keeps.

    base.py      the protocol; rates of arrival
    counted.py   PROB, LIFE, RAND, LRU, LFU, FIFO: from counters alone
    heeb.py      HEEB: the expected benefit under a model of the partner's key; HEEB whose α is learned

`score_of("heeb")` is what `policy = 'heeb'` means.
"""

from __future__ import annotations

from tocsin.errors import UsageError
from tocsin.limits.scores.base import ArrivalRates, Score, ScoreBase
from tocsin.limits.scores.counted import Frequent, Life, Oldest, Prob, Random, Recent
from tocsin.limits.scores.heeb import AdaptiveHeeb, Heeb, little_alpha

__all__ = [
    "JOIN_POLICIES",
    "AdaptiveHeeb",
    "ArrivalRates",
    "Frequent",
    "Heeb",
    "Life",
    "Oldest",
    "Prob",
    "Random",
    "Recent",
    "Score",
    "ScoreBase",
    "little_alpha",
    "score_of",
]

JOIN_POLICIES: dict[str, type[ScoreBase]] = {
    kind.name: kind for kind in (Heeb, Prob, Life, Random, Recent, Frequent, Oldest)
}
"""Policies of bounded joins by name; caches have `s3-fifo` and `arc` too (`limits/cache.py`)."""


def score_of(policy: str, caching: bool = False, seed: int = 0) -> Score:
    """The score of a policy's name.

    >>> score_of("lru").name
    'lru'
    >>> score_of("lru3")
    Traceback (most recent call last):
    ...
    tocsin.errors.UsageError: there is no policy 'lru3'
    hint: one of heeb, prob, life, rand, lru, lfu, fifo
    """
    if policy not in JOIN_POLICIES:
        raise UsageError(f"there is no policy {policy!r}", hint=f"one of {', '.join(JOIN_POLICIES)}")
    return JOIN_POLICIES[policy](caching, seed)  # type: ignore[return-value]

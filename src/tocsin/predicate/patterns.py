"""(being written) Many patterns, asked of many texts at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from tocsin.model.columns import Index
from tocsin.predicate.like import like

__all__ = ["Patterns"]


class Patterns:
    def __init__(self, patterns: Sequence[tuple[str, str]]) -> None:
        self.patterns = patterns

    def match(self, texts: Any) -> tuple[Index, Index]:
        found = []
        for i, (kind, pattern) in enumerate(self.patterns):
            hits = like(texts, pattern) if kind == "like" else pc.match_substring_regex(texts, pattern)
            at = np.flatnonzero(hits.to_numpy(zero_copy_only=False))
            found.append((at, np.full(len(at), i)))
        text = np.concatenate([f[0] for f in found])
        which = np.concatenate([f[1] for f in found])
        order = np.lexsort((which, text))
        return text[order], which[order]

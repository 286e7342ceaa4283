"""Texts without regard to case: two texts are alike if they are equal when *folded*.

Folding replaces each character by its lower case, if that is one character; the long s counts as an s. So an
ASCII letter is alike to exactly those characters that RE2 equates with it under `(?i)`.

>>> fold("DiſK 5\\u212a É"), fold("İ")
('disk 5k é', 'İ')
>>> fold_texts(pa.array(["DISK", None, "É"])).to_pylist()
['disk', None, 'é']
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["fold", "fold_texts"]

_LAST_CASED = 0x1E943  # no character above has a lower case


def fold(text: str) -> str:
    """One text, folded."""
    if text.isascii():
        return text.lower()
    low = text.lower()
    if len(low) == len(text) and "\u03a3" not in text and "\u017f" not in text:
        return low  # Python lowers character by character, but for a capital sigma at the end of a word
    return text.translate(_table())


def fold_texts(texts: Any) -> Any:
    """The texts of an Arrow array, folded."""
    if pc.all(pc.string_is_ascii(texts), min_count=0).as_py():
        return pc.ascii_lower(texts)
    plain = pc.string_is_ascii(texts)
    folded = [fold(text) for text in texts.filter(pc.invert(plain)).to_pylist()]  # NULLs are left out
    low = pc.ascii_lower(texts)
    return pc.replace_with_mask(low, pc.fill_null(pc.invert(plain), False), pa.array(folded, texts.type))


@cache
def _table() -> dict[int, str]:
    lower = {code: chr(code).lower() for code in range(_LAST_CASED + 1)}
    table = {code: low for code, low in lower.items() if len(low) == 1 and low != chr(code)}
    return {**table, 0x17F: "s"}

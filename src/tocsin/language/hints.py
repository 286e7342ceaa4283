"""Hints for conditions and clauses that are not supported: what to write instead, so that it works.

>>> nearest("prise", ["price", "size"])
"did you mean 'price'?"
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from sqlglot import exp
from sqlglot.tokens import Token, TokenType

__all__ = [
    "condition_hint",
    "nearest",
    "syntax_hint",
    "window_hint",
]

_PLAIN = "write: column operator constant"


def condition_hint(node: exp.Expr) -> str:
    """For a condition where a column or a constant is needed."""
    return "between conditions, write OR" if node.find(exp.DPipe) else _PLAIN


def window_hint(node: exp.Expr) -> str:
    """For `function OVER (...)`."""
    if isinstance(node.this, exp.AggFunc) and type(node.this) in (
        exp.Count,
        exp.Sum,
        exp.Avg,
        exp.Min,
        exp.Max,
    ):
        return "leave out OVER (...), and have the aggregate alone in SELECT"
    return (
        "the first n rows of a table are ORDER BY column LIMIT n; of each group, "
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY column ORDER BY column) <= n"
    )


def nearest(name: str, names: Iterable[str]) -> str | None:
    """A hint with the most similar name, if one is similar."""
    by_lower = {n.lower(): n for n in names}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=1, cutoff=0.6)
    return f"did you mean {by_lower[close[0]]!r}?" if close else None


# -- syntax errors -----------------------------------------------------------------------------------

_WORDS = (
    "SELECT",
    "FROM",
    "WHERE",
    "ORDER",
    "LIMIT",
    "JOIN",
    "BETWEEN",
    "LIKE",
    "RLIKE",
    "USING",
    "DISTINCT",
)
_OTHERS = {
    "MATCHES": "write RLIKE '...'",
    "~": "write RLIKE '...'",
    "CONTAINS": "write LIKE '%...%'",
    "STARTS": "write LIKE '...%'",
    "ENDS": "write LIKE '%...'",
    "&&": "write AND",
    "TOP": "write ORDER BY column LIMIT n at the end",
    "EMIT": "leave it out: every subscription emits changes",
    "STREAM": "leave it out: every subscription is a stream of changes",
}
_ENDS = {
    "WHERE": "write a condition after WHERE",
    "AND": "write a condition after AND",
    "OR": "write a condition after OR",
    "NOT": "write a condition after NOT",
    "FROM": "name a stream or table after FROM",
    "BETWEEN": "write BETWEEN low AND high",
}


def syntax_hint(tokens: Sequence[Token], at: Token | None, message: str) -> tuple[Token | None, str | None]:
    """The token that is probably wrong, and a hint; (at, None) if nothing is known.

    The parser stops one or two tokens after a misspelt word, because that was read as an alias.
    """
    place = next((i for i, token in enumerate(tokens) if token is at or token == at), len(tokens))
    near = tokens[max(0, place - 2) : place + 1][::-1]
    for token in near:
        if token.text.upper() in _OTHERS and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER):
            return token, _OTHERS[token.text.upper()]
    for token in near:
        known = token.token_type is TokenType.VAR and len(token.text) > 2
        close = difflib.get_close_matches(token.text.upper(), _WORDS, 1, cutoff=0.7) if known else []
        if close and close[0] != token.text.upper():
            return token, f"did you mean {close[0]}?"
    if at is None and tokens:
        last = tokens[-1].text.upper()
        if last in _ENDS:
            return at, _ENDS[last]
        if len(tokens) > 1 and tokens[-2].text.upper() == "BETWEEN":
            return at, _ENDS["BETWEEN"]
        if "expecting )" in message:
            return at, "close the parenthesis"
    return at, None

r"""Regular expressions: the words that a match must contain, and RE2 sets for regexes without such words.

Running ten thousand regexes over every text is too slow. But most of them spell out some word, and a
text without that word cannot match: `error [0-9]+ in (disk|net)` needs "error " and one of " in disk" and
" in net". Each such set is a *requirement*: whenever the regex matches, at least one of the set's words
occurs in the text. So one trie for the words of all regexes finds the few candidates, and RE2 runs
only these.

A small parser reads the common part of RE2's syntax. A regex that uses anything else (`\Q..\E`, octal
escapes, `\C`, odd braces, very deep nesting) has no requirement and runs over every text: slow, but
correct. RE2 itself has checked the syntax before.

    part of a regex      the exact words it matches    its requirements
    a character          {c}                           -
    . [a-z] \d \pL       unknown                       -
    ^ $ \b \A \z         {""}                          -
    xy                   every x followed by every y   both sides'; the exact sets where that grows too large
    x|y                  both sets                     best of x joined with best of y
    x? x*                {"", x..} or unknown          none: x may be absent
    x+ x{2,}             unknown                       x's

Under `(?i)` a letter matches several characters, so it is no literal. Over *folded* texts
(`model/folding.py`: a to z for A to Z, and for the Kelvin sign and the long s, the only other characters that
RE2 equates with an ASCII letter) it is one again: with `folded=True` the requirements hold for folded texts.

Regexes without requirement run over every text, several together in an RE2 set. A set whose automaton
runs out of memory reports no match at all. So each set contains the empty regex, which matches every text;
an answer without it is invalid.

>>> [sorted(words) for words in requirements(r"error [0-9]+ in (disk|net)\w*")]
[[' in disk', ' in net'], ['error ']]
>>> requirements(r"\d{4}-\d{2}"), requirements("(?i)disk")
([], [])
>>> requirements("(?i)DISK", folded=True)
[frozenset({'disk'})]
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import re2

from tocsin.model.columns import Index

__all__ = ["LONGEST", "SHORTEST", "RegexSet", "compiled", "least_bytes", "regex_sets", "requirements"]

SHORTEST = 3  # bytes: shorter words occur in nearly every text, and running the regex costs less
LONGEST = 24  # characters: longer words select no better
WORDS = 64  # in one requirement
PRODUCTS = 16  # exact words of a part that come from several choices
MOST_REQUIREMENTS = 8  # of one part
DEPTH = 50  # nested groups; RE2 itself allows 1000
COPIES = 4  # of x, at most, that x{n} is read as
SET_SIZE = 32  # regexes in one RE2 set; the automaton of more grows faster than they save
SET_MEMORY = 8 << 20  # bytes of one set at most ...
SETS_MEMORY = 256 << 20  # ... and of all sets together, as long as that leaves each one ...
LEAST_SET_MEMORY = 1 << 20  # ... this much

# For reading patterns only: Python's `re` never runs over a text.
_HEX = r"x(?:[0-9A-Fa-f]{2}|\{[0-9A-Fa-f]{1,6}\})"
_MARK = r"[ !-/:-@\[-`{-~]"  # RE2 reads an escaped ASCII mark as itself
_ONE = r"[dswDSW]|[pP](?:[A-Za-z]|\{\^?[A-Za-z_]+\})"
_COUNT = r"0|[1-9][0-9]*"  # with a leading zero RE2 reads the braces as plain characters
_TOKEN = re.compile(
    rf"""
    (?P<plain> [^\\\[(){{|*+?.^$] )
  | \\ (?P<escape> {_MARK} | [nrtfav] | {_HEX} )
  | (?P<one> \. | \\(?:{_ONE})
      | \[\^?\]? (?: [^\]\[\\] | \\(?:{_ONE}|{_MARK}|[nrtfav]|{_HEX}) | \[:\^?[a-z]+:\] | \[(?!:) )* \] )
  | (?P<zero> [\^$] | \\[bBAz] )
  | (?P<repeat> (?: [*+?] | \{{ (?P<least>{_COUNT}) (?P<comma>,(?P<most>{_COUNT})?)? \}} ) \?? )
  | (?P<open> \( (?: (?!\?) | \?P?<[^>]+> ) )
  | \(\? (?P<on>[imsU]*) (?: - (?P<off>[imsU]+) )? (?P<scope>[:)])
  | (?P<bar> \| ) | (?P<close> \) )
    """,
    re.VERBOSE | re.DOTALL,
)
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}

Words = frozenset[str]


def requirements(pattern: str, folded: bool = False, shortest: int | None = None) -> list[Words]:
    """Sets of words, each with at least one word in every text that matches; of at least so many bytes."""
    try:
        part = _RegexReader(pattern, folded).read()
    except _UnsureError:
        return []
    shortest = SHORTEST if shortest is None else shortest
    return [_least(words) for words in _best(_options(part)) if _bytes(words) >= shortest]


def least_bytes(pattern: str) -> int:
    """How many bytes a text that matches has at least.

    >>> least_bytes("a{1000,}|b{2000}"), least_bytes("(?i)^x?y+z"), least_bytes(r"\\Qab")
    (1000, 2, 0)
    """
    try:
        return _RegexReader(pattern, False).read().least
    except _UnsureError:
        return 0


class _UnsureError(Exception):
    """The pattern uses syntax that this parser does not know."""


class _RegexPart(NamedTuple):
    """A part of a regex: the exact words it matches, if known, its requirements, and its least length."""

    exact: Words | None
    needs: tuple[Words, ...] = ()
    least: int = 0


_NOTHING = _RegexPart(frozenset([""]))
_UNKNOWN = _RegexPart(None)
_ONE_CHARACTER = _RegexPart(None, (), 1)


class _RegexReader:
    """Reads one pattern, left to right; `fold` says whether `(?i)` is in force here."""

    def __init__(self, pattern: str, folded: bool) -> None:
        self.pattern, self.folded = pattern, folded
        self.at, self.fold, self.depth = 0, False, 0
        self.flagged = -1  # where the last (?flags) ended

    def read(self) -> _RegexPart:
        part = self._alternatives()
        if self.at < len(self.pattern):
            raise _UnsureError  # an unmatched closing parenthesis
        return part

    def _alternatives(self) -> _RegexPart:
        """Reads up to the end or to a closing parenthesis, which it leaves."""
        branches: list[_RegexPart] = []
        parts: list[_RegexPart] = []
        while self.at < len(self.pattern):
            token = _TOKEN.match(self.pattern, self.at)
            if token is None:
                raise _UnsureError
            if token["close"]:
                break
            self.at = token.end()
            if token["bar"]:
                branches.append(_sequence(parts))
                parts = []
            elif token["repeat"]:
                if not parts or self.flagged == token.start():
                    raise _UnsureError  # a(?i)* repeats the a, for RE2
                parts.append(_repeated(parts.pop(), token))
            elif token["scope"] == ")":  # (?i) is in force up to the end of the group around it
                self.fold, self.flagged = self._folds(token), self.at
            else:
                parts.append(self._part(token))
        return _either([*branches, _sequence(parts)])

    def _part(self, token: re.Match[str]) -> _RegexPart:
        if token["plain"]:
            return self._character(token["plain"])
        if token["escape"]:
            return self._character(_unescaped(token["escape"]))
        if token["one"]:
            return _ONE_CHARACTER
        if token["zero"]:
            return _NOTHING
        return self._group(token)

    def _character(self, character: str) -> _RegexPart:
        if self.folded:
            folded = frozenset([character.lower()]) if character.isascii() else None
            return _RegexPart(folded, (), 1)
        several = self.fold and (character.isalpha() or not character.isascii())
        return _ONE_CHARACTER if several else _RegexPart(frozenset([character]), (), 1)

    def _group(self, token: re.Match[str]) -> _RegexPart:
        before = self.fold
        self.fold = self._folds(token)
        self.depth += 1
        if self.depth > DEPTH:
            raise _UnsureError
        part = self._alternatives()
        if self.at == len(self.pattern):
            raise _UnsureError  # never closed
        self.at, self.depth, self.fold = self.at + 1, self.depth - 1, before
        return part

    def _folds(self, token: re.Match[str]) -> bool:
        """Whether `(?i)` is in force after `(?flags)` or within a group."""
        return (self.fold or "i" in (token["on"] or "")) and "i" not in (token["off"] or "")


def _unescaped(escape: str) -> str:
    if escape[0] == "x" and len(escape) > 1:
        code = int(escape[1:].strip("{}"), 16)
        if code > 0x10FFFF or 0xD800 <= code < 0xE000:
            raise _UnsureError
        return chr(code)
    return _CONTROLS.get(escape, escape)


def _sequence(parts: list[_RegexPart]) -> _RegexPart:
    """Parts one after the other: multiplies exact sets while they stay small, then starts a new run."""
    needs: list[Words] = []
    run, whole = frozenset([""]), True
    for part in parts:
        needs += part.needs
        if part.exact is not None and _grows(run, part.exact):
            run = frozenset(a + b for a, b in product(run, part.exact))
            continue
        needs.append(run)
        run, whole = part.exact or frozenset([""]), False
    least = sum(part.least for part in parts)
    if whole and not needs:
        return _RegexPart(run, (), least)
    return _RegexPart(None, _best([*needs, run]), least)


def _grows(run: Words, more: Words) -> bool:
    return len(run) * len(more) <= PRODUCTS and len(max(run, key=len)) < LONGEST


def _either(branches: list[_RegexPart]) -> _RegexPart:
    if len(branches) == 1:
        return branches[0]
    least = min(branch.least for branch in branches)
    if all(branch.exact is not None for branch in branches):
        words = frozenset(word for branch in branches for word in branch.exact or ())
        return _RegexPart(words if len(words) <= WORDS else None, (), least)
    best = [_best(_options(branch))[:1] for branch in branches]
    need = frozenset(word for words in best for word in (words[0] if words else [""]))
    return _RegexPart(None, _best([need]), least)


def _repeated(part: _RegexPart, token: re.Match[str]) -> _RegexPart:
    sign = token["repeat"][0]
    least = int(token["least"]) if sign == "{" else int(sign == "+")
    if sign == "{":
        most = least if token["comma"] is None else int(token["most"]) if token["most"] else None
    else:
        most = 1 if sign == "?" else None
    if least == 0:
        optional = most == 1 and part.exact is not None and len(part.exact) < PRODUCTS
        return _RegexPart((part.exact or frozenset()) | {""}) if optional else _UNKNOWN
    one_word = part.exact is not None and len(part.exact) == 1
    copies = [part] * (min(least, COPIES) if one_word else 1)
    rest = [] if most == len(copies) else [_UNKNOWN]
    return _sequence([*copies, *rest])._replace(least=min(least * part.least, 1 << 30))


def _options(part: _RegexPart) -> list[Words]:
    return [*part.needs, *([] if part.exact is None else [part.exact])]


def _best(options: list[Words]) -> tuple[Words, ...]:
    """The most selective requirements first, without those that every text meets."""
    real = dict.fromkeys(words for words in options if "" not in words and len(words) <= WORDS)
    return tuple(sorted(real, key=lambda words: (-min(8, _bytes(words)), len(words))))[:MOST_REQUIREMENTS]


def _least(words: Words) -> Words:
    """Drops words that contain another word of the set; cuts long ones."""
    kept: list[str] = []
    for word in sorted((word[:LONGEST] for word in words), key=len):
        if not any(other in word for other in kept):
            kept.append(word)
    return frozenset(kept)


def _bytes(words: Words) -> int:
    return min((len(word.encode()) for word in words), default=0)


# -- RE2 --------------------------------------------------------------------------------------------


class RegexSet(NamedTuple):
    """An RE2 set: its regex 0 is the empty one, regex i + 1 has number `numbers[i]`."""

    set: Any
    numbers: Index


def regex_sets(
    regexes: list[tuple[int, str]], memory: int | None = None, among: int = 0
) -> tuple[list[RegexSet], list[int]]:
    """(number, regex) grouped into RE2 sets, and the numbers of regexes too large for any set.

    `among`: how many regexes without words there are in all, which share the memory.
    """
    if memory is None:
        memory = SETS_MEMORY * SET_SIZE // max(len(regexes), among, 1)
        memory = max(LEAST_SET_MEMORY, min(SET_MEMORY, memory))
    # Similar regexes share a set: their automata share states instead of multiplying them.
    regexes = sorted(regexes, key=lambda pair: pair[1])
    waiting = [regexes[at : at + SET_SIZE] for at in range(0, len(regexes), SET_SIZE)]
    made, single = [], []
    while waiting:
        group = waiting.pop()
        group_set = re2.Set.SearchSet(_options_for(memory))
        try:
            for regex in ("", *(regex for _, regex in group)):
                group_set.Add(regex)
            group_set.Compile()
        except re2.error:  # too large for the memory
            if len(group) == 1:
                single.append(group[0][0])
            else:
                waiting += [group[: len(group) // 2], group[len(group) // 2 :]]
        else:
            made.append(RegexSet(group_set, np.array([number for number, _ in group], np.int64)))
    return made, single


def compiled(regex: str) -> Any:
    """The regex, ready to search UTF-8 bytes; ValueError with RE2's reason if it is not one.

    >>> compiled("(ab")
    Traceback (most recent call last):
    ...
    ValueError: the regex '(ab' is not valid: missing ): (ab
    """
    try:
        return re2.compile(regex.encode(), _options_for(None))
    except re2.error as error:
        reason = error.args[0] if error.args else error
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise ValueError(f"the regex {regex!r} is not valid: {reason}") from None


def _options_for(memory: int | None) -> Any:
    options = re2.Options()
    options.log_errors, options.never_capture = False, True
    if memory is not None:
        options.max_mem = memory
    return options

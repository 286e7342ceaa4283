r"""Workloads of texts: keyword alerts, a shop's item specifics, prefixes; regular expressions over log lines.

    keywords    each word is an attribute, its popularity follows Zipf's law. A subscription needs 2 or 3
                words, a document has 5 (a tweet) or 120 (an encyclopedia's article): O14 7.1 and Figure 11
    products    attributes such as brand and color with texts, and a price: O14 7.1 and Figure 12. Products
                have attributes by their frequency, subscriptions by the logarithm of it
    prefix      words under a hundred text attributes, among many numeric ones: O14's Figure 14

O14's logs and pages are not available; these workloads have the same counts and skews.

>>> work = products(3, 1, 7, Products())
>>> work.n, work.events.column_names
(3, ['attributes', 'texts'])

`regex_set(n, seed)` uses the words of `word_set(n // 5, seed)`; lines of these words match some regexes:

>>> words = word_set(2, seed=1)
>>> words, regex_set(10, seed=1)[0]
(['oubdtm', 'ucavltal'], 'user_ucavltal\\d{3,}@host\\.example')
>>> texts(1, 40, seed=1, words=words).to_pylist()
['oubdtm oubdtm ucavltal ucavltal oubdtm: ']
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from string import ascii_lowercase
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.lab.bench.draws import (
    FilterWorkload,
    Popularity,
    attribute_names,
    dictionary_array,
    distinct_rows,
    event_maps,
    offsets_of,
    require,
    subscription_table,
)

__all__ = [
    "Keywords",
    "Prefixes",
    "Products",
    "keywords",
    "prefixes",
    "products",
    "regex_set",
    "texts",
    "vocabulary",
    "word_set",
]

_COMMON = (
    "price brand color size model material type country style year weight capacity condition".split()
)  # the first attributes of a shop, the most frequent first
_PAGES, _BRANDED = 296_846, 0.31  # O14: products, and the share of them with the most frequent attribute
_CONSONANTS, _VOWELS = list("bdfgklmnprstvz"), list("aeiou")


@dataclass(frozen=True)
class Keywords:
    """Parameters of `keywords`."""

    attributes: int = 50_000  # words
    smallest: int = 2  # words per subscription
    largest: int = 3
    event_size: int = 5  # words per document
    zipf: float = 1.0  # popularity of words, in subscriptions and documents
    operator: str = "="  # `= 1`, is_not_null, or between (the word occurs so many times)

    def check(self) -> None:
        _check_sizes(self)
        known = ("=", "is_not_null", "between")
        require(
            self.operator in known,
            f"keywords have no operator {self.operator!r}",
            f"one of {', '.join(known)}",
        )


@dataclass(frozen=True)
class Products:
    """Parameters of `products`."""

    attributes: int = 10_204  # with the price
    smallest: int = 1  # predicates per subscription
    largest: int = 4
    event_size: int = 20  # attributes per product at most; at least 4
    zipf: float = 0.9  # how fast the frequency of attributes falls
    domain: int = 100  # texts per attribute
    sets: float = 0.2  # share of IN among predicates on texts, the rest being =
    priced: float = 0.5  # share of subscriptions with a range of prices

    def check(self) -> None:
        _check_sizes(self)
        require(self.event_size >= 4, f"a product has at least 4 attributes, not {self.event_size}")
        require(self.domain >= 4, f"an attribute has at least 4 texts, not {self.domain}")


@dataclass(frozen=True)
class Prefixes:
    """Parameters of `prefixes`: predicates on words among predicates on numbers."""

    attributes: int = 10_000  # with numbers
    texts: int = 100  # attributes with words
    smallest: int = 1
    largest: int = 4
    event_size: int = 20  # half of them with words
    domain: int = 50  # values 1..domain of numbers
    share: float = 0.2  # of predicates that are prefixes; the rest is = on numbers
    length: int = 3  # letters of a prefix at most
    words: int = 20_000

    def check(self) -> None:
        _check_sizes(self)
        require(self.largest <= self.texts, f"there are only {self.texts} attributes with words")
        require(self.event_size // 2 <= self.texts, f"there are only {self.texts} attributes with words")


def _check_sizes(setting: Keywords | Products | Prefixes) -> None:
    require(
        1 <= setting.smallest <= setting.largest,
        f"sizes go from smallest to largest, not from {setting.smallest} to {setting.largest}",
    )
    most = max(setting.largest, setting.event_size)
    require(
        most < setting.attributes,
        f"{most} different attributes are needed, and there are {setting.attributes}",
    )


# -- keywords ----------------------------------------------------------------------------------------


def keywords(n: int, events: int, seed: int, setting: Keywords, name: str = "keywords") -> FilterWorkload:
    """Words that must all occur."""
    setting.check()
    own, others = np.random.default_rng(seed).spawn(2)
    popularity = Popularity.zipf(setting.attributes, setting.zipf)
    names = attribute_names(setting.attributes)
    sizes = own.integers(setting.smallest, setting.largest + 1, n, np.int32)
    word = distinct_rows(own, sizes, popularity)
    columns = {
        "attribute": dictionary_array(word, names),
        "op": dictionary_array(np.zeros(len(word), np.int8), [setting.operator]),
    }
    if setting.operator == "between":
        low = _occurrences(own, len(word))
        columns |= {"number": low, "high": low + own.integers(1, 16, len(word))}
    elif setting.operator == "=":
        columns["number"] = np.ones(len(word))
    table = subscription_table(offsets_of(sizes), **columns)
    lengths = np.full(events, setting.event_size)
    found = distinct_rows(others, lengths, popularity)
    times = _occurrences(others, len(found)) if setting.operator == "between" else np.ones(len(found))
    documents = event_maps(offsets_of(lengths), dictionary_array(found, names), times)
    return FilterWorkload(name, table, pa.table({"attributes": documents}))


def _occurrences(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """How often a word occurs: mostly once or twice, up to 30 times."""
    return Popularity.zipf(30, 1.5).draw(rng, count).astype(np.float64) + 1


# -- products ----------------------------------------------------------------------------------------


def products(n: int, events: int, seed: int, setting: Products, name: str = "products") -> FilterWorkload:
    """Texts of item specifics, by = and IN, and ranges of prices."""
    setting.check()
    own, others = np.random.default_rng(seed).spawn(2)
    names = [*_COMMON, *(f"specific{i}" for i in range(len(_COMMON), setting.attributes))]
    names = names[: setting.attributes]
    frequency = _BRANDED * np.arange(1.0, setting.attributes) ** -setting.zipf  # of all but the price
    values = Popularity.zipf(setting.domain, 1.0)
    words = np.array(vocabulary(20 * setting.domain))
    return FilterWorkload(
        name,
        _product_subscriptions(own, n, setting, np.log(_PAGES * frequency + 1), values, (names, words)),
        _products(others, events, setting, frequency, values, (names, words)),
    )


_Names = tuple[list[str], Any]  # of attributes, and words that are their texts


def _text_of(attribute: Any, rank: Any, words: Any) -> Any:
    """The word that is the rank-th text of an attribute: attributes share words, in different orders."""
    return ((attribute.astype(np.int64) * 37 + rank) % len(words)).astype(np.int32)


def _product_subscriptions(
    rng: np.random.Generator, n: int, setting: Products, weights: Any, values: Popularity, names: _Names
) -> Any:
    sizes = rng.integers(setting.smallest, setting.largest + 1, n, np.int32)
    offsets = offsets_of(sizes)
    attribute = distinct_rows(rng, sizes, Popularity(len(weights), weights)) + np.int32(1)
    attribute[offsets[:-1][rng.random(n) < setting.priced]] = 0  # the price instead
    price = attribute == 0
    total = len(attribute)
    among = ~price & (rng.random(total, np.float32) < setting.sets)
    between = price & (rng.random(total, np.float32) < 0.5)
    rank = values.draw(rng, total)
    low = _prices(rng, total)
    members = np.where(among, rng.integers(2, 5, total), 0)
    member = np.arange(int(members.sum())) - np.repeat(np.cumsum(members) - members, members)
    chosen = np.repeat(attribute, members), (np.repeat(rank, members) + member) % setting.domain
    listed = pa.array(names[1]).take(pa.array(_text_of(*chosen, names[1])))
    op = np.select([among, between, price], [1, 3, 2], 0).astype(np.int8)
    text = pa.array(_text_of(attribute, rank, names[1]), mask=price | among)
    return subscription_table(
        offsets,
        attribute=dictionary_array(attribute, names[0]),
        op=dictionary_array(op, ["=", "in", "<=", "between"]),
        number=pa.array(low, mask=~price),
        high=pa.array(np.round(low * 1.5), mask=~between),
        text=pa.DictionaryArray.from_arrays(text, pa.array(names[1])),
        values=pa.ListArray.from_arrays(pa.array(offsets_of(members)), listed, mask=pa.array(~among)),
    )


def _products(
    rng: np.random.Generator, count: int, setting: Products, weights: Any, values: Popularity, names: _Names
) -> Any:
    sizes = rng.integers(3, setting.event_size, count)
    attribute = distinct_rows(rng, sizes, Popularity(len(weights), weights)) + np.int32(1)
    event = np.repeat(np.arange(count), sizes)
    attribute = attribute[np.lexsort((attribute, event))]
    text = _text_of(attribute, values.draw(rng, len(attribute)), names[1])
    once = offsets_of(np.ones(count, np.int64))
    prices = event_maps(once, dictionary_array(np.zeros(count, np.int32), names[0][:1]), _prices(rng, count))
    specifics = pa.array(names[1]).take(pa.array(text))
    texts = event_maps(offsets_of(sizes), dictionary_array(attribute, names[0]), specifics)
    return pa.table({"attributes": prices, "texts": texts})


def _prices(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Most below 100, some far above."""
    return np.ceil(rng.lognormal(3.5, 1.0, count))


# -- prefixes ----------------------------------------------------------------------------------------


def prefixes(n: int, events: int, seed: int, setting: Prefixes, name: str = "prefix") -> FilterWorkload:
    """`attribute LIKE 'abc%'` on words, `attribute = value` on numbers."""
    setting.check()
    own, others = np.random.default_rng(seed).spawn(2)
    names = attribute_names(setting.attributes + setting.texts)  # those with words come last
    words = vocabulary(setting.words)
    starts = pa.array([word[: setting.length] for word in words]).dictionary_encode()
    popularity = Popularity.zipf(setting.words, 0.5)
    sizes = own.integers(setting.smallest, setting.largest + 1, n, np.int32)
    number = distinct_rows(own, sizes, Popularity(setting.attributes))
    text = distinct_rows(own, sizes, Popularity(setting.texts)) + np.int32(setting.attributes)
    is_text = own.random(len(number), np.float32) < setting.share
    table = subscription_table(
        offsets_of(sizes),
        attribute=dictionary_array(np.where(is_text, text, number), names),
        op=dictionary_array(is_text.astype(np.int8), ["=", "prefix"]),
        number=pa.array(own.integers(1, setting.domain + 1, len(number)).astype(np.float64), mask=is_text),
        text=starts.take(pa.array(popularity.draw(own, len(number)), mask=~is_text)),
    )
    half = setting.event_size // 2
    with_words, with_numbers = np.full(events, half), np.full(events, setting.event_size - half)
    shown = distinct_rows(others, with_words, Popularity(setting.texts)) + np.int32(setting.attributes)
    counted = distinct_rows(others, with_numbers, Popularity(setting.attributes))
    value = others.integers(1, setting.domain + 1, len(counted)).astype(np.float64)
    drawn_words = pa.array(words).take(pa.array(popularity.draw(others, len(shown))))
    return FilterWorkload(
        name,
        table,
        pa.table(
            {
                "attributes": event_maps(offsets_of(with_numbers), dictionary_array(counted, names), value),
                "texts": event_maps(offsets_of(with_words), dictionary_array(shown, names), drawn_words),
            }
        ),
    )


def vocabulary(count: int) -> list[str]:
    """`count` different words of two to four syllables, always the same ones.

    >>> vocabulary(3)
    ['tiponu', 'kobidibu', 'feturo']
    """
    rng = np.random.default_rng(0)
    words: dict[str, None] = {}
    while len(words) < count:
        first = rng.choice(_CONSONANTS, (count, 4))
        then = rng.choice(_VOWELS, (count, 4))
        pairs = np.char.add(first, then)
        for syllables, size in zip(pairs.tolist(), rng.integers(2, 5, count).tolist(), strict=True):
            words["".join(syllables[:size])] = None
    return list(words)[:count]


# -- regular expressions -----------------------------------------------------------------------------

# A regex with the words {a} and {b}, and a line that it may match.
_REGEXES = (
    (r"{a} [0-9]+ in (disk|net)\w*", "{a} {n} in disk{d}"),
    (r"user_{a}\d{{3,}}@host\.example", "user_{a}{n}@host.example"),
    (r"^GET /api/v[12]/{a}/\d+", "GET /api/v1/{a}/{n}"),
    (r"({a}|{b}): (timeout|refused)", "{a}: refused"),
    (r"\b{a}[-_ ]?{b}\b", "{a}-{b}"),
    (r"{a}=[a-z0-9]{{4,}}(;|$)", "{a}={x};"),
    (r"(?i)\b{a} failed", "{a} Failed"),
    (r"{a}.*{b}$", "{b} {a}"),
)
_PIECES = (r"\d{%d}", r"\d{%d,}", r"[a-f]{%d,}", r"[A-Z]{%d}", r"\w{%d}", r"[aeiou]{%d}")
_BETWEEN = ("-", ":", r"\s", " ", r"\.", "[-/]", r"\W+", "=")
_SHARE_WITHOUT, _SHARE_LINES = 0.03, 0.1


def word_set(n: int, seed: int) -> list[str]:
    """Distinct words of 5 to 10 letters."""
    draw = Random(seed)
    words: dict[str, None] = {}
    while len(words) < n:
        words["".join(draw.choices(ascii_lowercase, k=draw.randint(5, 10)))] = None
    return list(words)


def regex_set(n: int, seed: int) -> list[str]:
    """Distinct regexes as people write them over logs, with one or two words; a few percent have none."""
    draw = Random(seed)
    words = word_set(max(1, n // 5), seed)
    found: dict[str, None] = {}
    while len(found) < n:
        if draw.random() < _SHARE_WITHOUT:
            between = draw.choice(_BETWEEN)
            regex = between.join(draw.choice(_PIECES) % draw.randint(2, 6) for _ in range(draw.randint(1, 3)))
        else:
            regex = draw.choice(_REGEXES)[0].format(a=draw.choice(words), b=draw.choice(words))
        found[regex] = None
    return list(found)


def texts(n: int, length: int, seed: int, words: list[str]) -> Any:
    """Lines of exactly `length` characters: words, and sometimes text for a regex of `regex_set`."""
    draw = Random(seed)
    return pa.array([_line(draw, length, words) for _ in range(n)], pa.string())


def _line(draw: Random, length: int, words: list[str]) -> str:
    parts: list[str] = []
    size = 0
    while size < length:
        part = draw.choice(words)
        if draw.random() < _SHARE_LINES:
            number = draw.randint(0, 10**6)
            code = "".join(draw.choices(ascii_lowercase + "0123456789", k=6))
            line = draw.choice(_REGEXES)[1]
            part = line.format(a=part, b=draw.choice(words), n=number, d=number % 10, x=code)
        parts.append(part)
        size += len(part) + 1
    return " ".join(parts)[:length]

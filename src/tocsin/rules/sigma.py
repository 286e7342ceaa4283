"""Sigma detection rules, read by pySigma (the extra `sigma`); `docs/rules-sigma.md` says what differs.

pySigma reads the rule, its modifiers, its condition and the processing pipelines that map fields; the tree
that it gives becomes our condition in `sigma_backend.py`. Texts are compared without regard to case, so most
of a rule is patterns over folded texts, which one trie finds for all rules (`predicate/patterns.py`).

>>> rule = '''
... title: Whoami
... logsource: {category: process_creation}
... detection:
...     selection: {Image|endswith: '\\\\whoami.exe'}
...     filter: {User: SYSTEM}
...     condition: selection and not filter
... '''
>>> (found,) = Sigma().read([rule])
>>> print(found.rule, "|", found.where)
Whoami | Image ILIKE '%\\\\\\\\whoami.exe' AND NOT (`User` ILIKE 'SYSTEM') IS TRUE
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from tocsin.language.algebra import Predicate
from tocsin.rules.base import RefusedError, RuleLanguage
from tocsin.rules.sigma_backend import PIPELINES, backend_of

__all__ = ["Sigma"]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Sigma(RuleLanguage):
    """Rules as YAML texts or as dicts.

    `pipelines` are applied in order: a pySigma pipeline, the text of one in YAML, or a name of `PIPELINES`.
    `fields` renames fields: a mapping to attributes or paths, or to lists of them of which one must match.
    With `paths=False` a dot in a field's name is a part of an attribute's name, not a step into an object.
    """

    kind = "sigma"

    def __init__(
        self,
        pipelines: Iterable[Any] | Any = (),
        fields: Mapping[str, str | list[str]] | None = None,
        paths: bool = True,
    ) -> None:
        self._backend = backend_of(pipelines, fields or {}, paths)

    def rules(self, source: Any) -> Iterator[tuple[str, Any]]:
        documents = [source]
        if isinstance(source, str):
            try:
                documents = [found for found in yaml.load_all(source, Loader=_Loader) if found is not None]
            except yaml.YAMLError as error:
                mark = getattr(error, "problem_mark", None)
                place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}"
                raise RefusedError(place, "", f"this is not YAML: {error}") from None
        yield from self._backend.merged(documents)

    def condition(self, rule: Any) -> Predicate:
        if not isinstance(rule, Mapping):
            raise RefusedError("", rule, "a rule is a mapping")
        return self._backend.condition(rule)


__all__ += ["PIPELINES"]

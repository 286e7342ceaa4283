"""Rules of other systems as conditions over events of an open stream, exactly or not at all.

    base.py          the protocol: a rule language reads rules; each is a condition, or refused at a place
    eventbridge.py   event patterns of Amazon EventBridge
    cesql.py         CloudEvents SQL; its syntax and its values are in `cesql_syntax.py` and `cesql_values.py`
    percolator.py    stored queries of Elasticsearch and OpenSearch: `percolator_fields.py` has mappings and
                     conditions of one field, `percolator_text.py` query texts, through luqum (the extra
                     `percolator`), `analysis.py` the forms of values that indexes have
    sigma.py         detection rules, through pySigma (`sigma_backend.py`, the extra `sigma`)
    correlations.py  correlations of Sigma rules, as queries over streams with declared columns
    shared.py        conditions too large for a normal form: parts as shared attributes
    atoms.py         conditions that several of them use; addresses.py: those on IP addresses

`Engine.subscribe_rules` registers what was read; `tocsin import` shows it.
"""

from tocsin.rules.base import Condition, Refusal, Rule, RuleLanguage, language, read_rules

__all__ = ["Condition", "Refusal", "Rule", "RuleLanguage", "language", "read_rules"]

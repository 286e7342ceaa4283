"""Check what the documents claim about rules of other systems and about JSON.

python bench/rules_show.py sigma --data ../shared/data/sigma

`--cpu 1` measures processor time, so that other processes do not count.
"""

from __future__ import annotations

from claims import parser_of, show_claims
from rules_json import show_flatten, show_paths
from rules_sigma import show_sigma

SHOWS = {
    show_sigma: {"data": "", "rules": 3000, "events": 20_000, "singly": 3000, "checked": 40, "cpu": 0},
    show_paths: {"subscriptions": 100_000, "events": 20_000, "checked": 50, "cpu": 0},
    show_flatten: {"megabytes": 64, "cpu": 0},
}

if __name__ == "__main__":
    raise SystemExit(show_claims(parser_of(__doc__, SHOWS, 5).parse_args()))

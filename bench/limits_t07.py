"""T07, chapters 2 and 3, under limits: every figure beside what the thesis states.

    python bench/limits_t07.py                                 all figures but those of REAL
    python bench/limits_t07.py --figure 3.9,3.10 --runs 5
    python bench/limits_t07.py --data melbourne-daily-max-temperatures.csv

The same as `tocsin bench limits --figure F`, which prints JSON too. Claims follow each table; the script ends
with 1 if one of them does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from claims import say
from common import RESULTS, Rows, listed, main_of, write_csv, write_page

from tocsin.lab.bench.limits.figures import LimitsSetting, figure_of, figures
from tocsin.lab.bench.limits.show import as_markdown, draw


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--figure", default="", help=f"only these, by commas: {', '.join(figures())}")
    parser.add_argument(
        "--runs", type=int, default=None, help="runs of each figure (default: its own number)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=None, help="the daily temperatures of REAL")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    setting = LimitsSetting(options.runs, options.seed, options.data)
    chosen = [figure_of(name) for name in listed(options.figure) or figures()]
    if not options.figure and options.data is None:
        chosen = [figure for figure in chosen if not figure.needs_data]
    parts, missed = ["# T07, chapters 2 and 3: under limits\n"], 0
    for figure in chosen:
        say(f"figure {figure.name}")
        result = figure.run(setting, say)
        missed += sum(not claim.met for claim in result.claims)
        for claim in result.claims:
            print(json.dumps(claim.to_dict()), flush=True)
        rows: Rows = [row._asdict() for row in result.rows]
        write_csv(options.out / f"t07-{figure.name}.csv", rows)
        draw(options.out / f"t07-{figure.name}.png", figure, result)
        parts.append(as_markdown(figure, result) + f"\n![](t07-{figure.name}.png)\n")
    write_page(options.out / "t07-limits.md", parts, whole=not options.figure)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main_of(main)

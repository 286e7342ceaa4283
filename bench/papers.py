"""All figures of all papers by one command, and a closing table: published, measured, holds or why not.

    make papers                              at 0.02 of the papers' sizes
    make papers ARGS='--scale 1'             as published: days, some of them on memory that few machines have
    python bench/papers.py --only o14,k12-I --scale 0.001
    python bench/papers.py --list

A job draws one figure, or a few that share a sweep, in a process of its own. What is done at a scale is not
done again: stop it and start it again as you like (`--again` forgets). Results are in build/papers/scale-...:
pictures, tables, a log for each job, `claims.md` and `index.md`. Times are those of this machine, so claims
about speed compare methods with each other; counts and traffic are compared with published numbers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from claims import say
from paper_claims import Verdict, verdicts

HERE = Path(__file__).parent
OUT = HERE.parent / "build" / "papers"


@dataclass(frozen=True)
class Job:
    """A script with its arguments; `{scale}` and `{events}` are filled in."""

    name: str
    script: str
    arguments: tuple[str, ...]

    def command(self, scale: float, events: int, out: Path) -> list[str]:
        """What is run."""
        given = [part.format(scale=f"{scale:g}", events=events) for part in self.arguments]
        return [sys.executable, str(HERE / self.script), *given, "--out", str(out)]


def _by_figure(
    prefix: str, script: str, figures: Sequence[str], *more: str, option: str = "--figure"
) -> list[Job]:
    return [Job(f"{prefix}-{one}", script, (option, one, *more)) for one in figures]


_SCALED = ("--scale", "{scale}")
_FILTERS = (*_SCALED, "--events", "{events}", "--repeat", "2")
JOBS = [
    *_by_figure(
        "o14",
        "filters_o14.py",
        (
            "1a,1b",
            "8a,9a,10a",
            "8b,10e",
            "9b,10b",
            "10c",
            "10d",
            "10f",
            "11a,11b",
            "11c,11d",
            "11e,11f",
            "12a,12b",
            "12c,12d",
            "12e,12f",
            "13a-cnf",
            "13a-dnf",
            "13b-cnf",
            "13b-dnf",
            "14a",
            "14b",
        ),
        *_FILTERS,
    ),
    *_by_figure(
        "f01",
        "filters_f01.py",
        (
            "throughput,matching,memory,loading",
            "operators",
            "schema,maintenance-schema",
            "skew,maintenance-skew",
        ),
        *_FILTERS,
    ),
    *_by_figure("t07-4", "stabbing.py", ("million", "maintenance", "coverage", "histogram"), *_SCALED),
    *_by_figure(
        "t07-4",
        "joins_t07.py",
        ("4.7i", "4.7ii", "4.8iii", "4.8iv", "4.9", "4.10i", "4.10ii", "4.11", "4.13", "4.17", "4.19"),
        *_SCALED,
    ),
    Job("t07-5", "rank_t07.py", _SCALED),
    *_by_figure("k12", "rank_k12.py", ("4a", "5a", "6b", "8a", "9", "I", "V"), *_SCALED),
    *_by_figure(
        "k12-network",
        "network_k12.py",
        ("uniform", "stocks"),
        *_SCALED,
        "--events",
        "{events}",
        option="--sweep",
    ),
    *_by_figure(
        "t07-network",
        "network_t07.py",
        ("ignorable", "spikes", "stocks"),
        *_SCALED,
        "--events",
        "{events}",
        option="--sweep",
    ),
    *_by_figure(
        "j08",
        "network_j08.py",
        ("subscriptions", "rjor", "stocks", "payload", "overlap", "window", "repository", "latency"),
        "--events",
        "{events}",
        option="--sweep",
    ),
    Job("j08-star", "network_figures.py", ("star", "--changes", "{events}", "--no-bar")),
    Job("j08-decompositions", "network_figures.py", ("decompositions", "--no-bar")),
    Job("j08-pictures", "network_j08.py", ("--sweep", "none")),
    *_by_figure(
        "t07-limits",
        "limits_t07.py",
        (
            "2.1",
            "2.4",
            "2.5",
            "2.6",
            "2.7",
            "3.7",
            "3.9",
            "3.10",
            "3.11",
            "3.12",
            "3.13",
            "3.15",
            "3.20",
            "drift",
        ),
    ),
]


class Progress:
    """What is done, in `done.json`: the seconds of each job by its command."""

    def __init__(self, out: Path) -> None:
        self._file = out / "done.json"
        self.seconds: dict[str, float] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def finished(self, command: Sequence[str], seconds: float) -> None:
        self.seconds[self.key(command)] = seconds
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self.seconds, indent=1))
        new.replace(self._file)

    @staticmethod
    def key(command: Sequence[str]) -> str:
        return " ".join(command[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=0.02, help="share of the papers' sizes (default 0.02)")
    parser.add_argument("--events", type=int, default=500, help="events of a measurement (default 500)")
    parser.add_argument("--data", type=Path, help="the daily temperatures: figures 3.14, 3.16, 3.17 of T07")
    parser.add_argument("--only", default="", help="jobs whose names begin so, by commas")
    parser.add_argument("--again", action="store_true", help="do what is done already again")
    parser.add_argument("--list", action="store_true", help="print the jobs")
    parser.add_argument("--out", type=Path, help="default: build/papers/scale-...")
    options = parser.parse_args()
    options.out = options.out or OUT / f"scale-{options.scale:g}"
    begins = tuple(part for part in options.only.split(",") if part)
    known = list(JOBS)
    if options.data is not None:
        data = ("--data", str(options.data.resolve()))
        known += _by_figure("t07-limits", "limits_t07.py", ("3.14", "3.16", "3.17"), *data)
    jobs = [job for job in known if not begins or job.name.startswith(begins)]
    if options.list:
        print("\n".join(job.name for job in jobs))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    failed = run(jobs, options)
    found = verdicts(options.out)
    write_pages(options, found, failed)
    print(table(found, options.scale))
    counts = {
        word: sum(one.word == word for one in found) for word in ("holds", "does not hold", "not measured")
    }
    say(", ".join(f"{count} {word}" for word, count in counts.items()))
    if failed:
        say(f"failed: {', '.join(failed)}; their logs are in {options.out / 'logs'}")
    return 1 if failed else 0


def run(jobs: Sequence[Job], options: argparse.Namespace) -> list[str]:
    """Run what is not done yet; returns the names of jobs that failed."""
    progress, failed, began, ran = Progress(options.out), [], time.monotonic(), 0
    logs = options.out / "logs"
    logs.mkdir(exist_ok=True)
    for number, job in enumerate(jobs, 1):
        command = job.command(options.scale, options.events, options.out)
        if progress.key(command) in progress.seconds and not options.again:
            continue
        left = (time.monotonic() - began) / ran * (len(jobs) - number + 1) if ran else None
        about = "" if left is None else f", about {left / 60:.0f} min left"
        say(f"[{number}/{len(jobs)}] {job.name}{about}")
        start = time.monotonic()
        with open(logs / f"{job.name}.log", "w", encoding="utf-8") as log:
            done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, cwd=HERE.parent)
        ran += 1
        if done.returncode and job.script != "limits_t07.py":  # there 1 says that a claim was missed
            failed.append(job.name)
            say(f"  failed with {done.returncode}")
        else:
            progress.finished(command, round(time.monotonic() - start, 1))
    return failed


def table(found: Sequence[Verdict], scale: float) -> str:
    """The closing table, as Markdown."""
    small = f": at {scale:g} of the paper's sizes" if scale < 1 else ""
    lines = ["| paper | figure | published | measured | |", "| --- | --- | --- | --- | --- |"]
    for one in found:
        why = f": {one.why}" if one.why else small if one.word == "does not hold" else ""
        lines.append(f"| {one.paper} | {one.figure} | {one.published} | {one.measured} | {one.word}{why} |")
    return "\n".join(lines)


def write_pages(options: argparse.Namespace, found: Sequence[Verdict], failed: Sequence[str]) -> None:
    """`claims.md`, `claims.json`, and `index.md` with all pictures."""
    out, lines = options.out, table(found, options.scale)
    (out / "claims.md").write_text(f"# Every claim: {out.name}\n\n{lines}\n", encoding="utf-8")
    (out / "claims.json").write_text(json.dumps([asdict(one) for one in found], indent=1), encoding="utf-8")
    pictures = "\n".join(f"## {path.stem}\n\n![]({path.name})\n" for path in sorted(out.glob("*.png")))
    missing = f"Failed: {', '.join(failed)}.\n\n" if failed else ""
    (out / "index.md").write_text(f"# The papers' figures\n\n{missing}[Every claim](claims.md)\n\n{pictures}")
    say(f"written to {out / 'index.md'} and claims.md")


if __name__ == "__main__":
    sys.exit(main())

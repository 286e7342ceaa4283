"""`make papers`: the closing table over the stored results, and jobs that are not run twice."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(name="papers")
def _papers(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import papers

    yield papers
    for name in ("papers", "paper_claims", "claims"):
        sys.modules.pop(name, None)


def test_every_claim_has_a_verdict_and_those_that_miss_have_a_reason(papers, tmp_path):
    for path in (BENCH / "results").glob("*.csv"):
        shutil.copy(path, tmp_path)
    (tmp_path / "logs").mkdir()
    found = papers.verdicts(tmp_path)
    assert len(found) > 50 and {one.paper for one in found} >= {"F01", "J08", "K12", "O14", "T07 4", "T07 5"}
    assert {one.word for one in found} == {"holds", "does not hold"}
    assert all(one.why for one in found if one.word != "holds")
    assert papers.table(found, 1.0).count("\n") == len(found) + 1


def test_claims_without_results_are_not_measured(papers, tmp_path):
    (tmp_path / "logs").mkdir()
    assert {one.word for one in papers.verdicts(tmp_path)} == {"not measured"}


def test_jobs_are_resumed(papers, tmp_path):
    script = tmp_path / "job.py"
    script.write_text("import sys; open(sys.argv[-1] + '/ran', 'a').write('x'); sys.exit(int(sys.argv[1]))")
    jobs = [
        papers.Job("one", str(script), ("0", "{scale}")),
        papers.Job("bad", str(script), ("3", "{scale}")),
    ]
    options = argparse.Namespace(scale=0.5, events=10, again=False, out=tmp_path)
    assert papers.run(jobs, options) == ["bad"]
    assert papers.run(jobs, options) == ["bad"]
    assert (tmp_path / "ran").read_text() == "xxx"  # what failed is tried again
    options.scale = 0.25
    papers.run(jobs[:1], options)
    options.again = True
    papers.run(jobs[:1], options)
    assert (tmp_path / "ran").read_text() == "xxxxx"


def test_jobs_name_figures_that_scripts_know(papers):
    assert len({job.name for job in papers.JOBS}) == len(papers.JOBS)
    assert all((BENCH / job.script).exists() for job in papers.JOBS)

"""Hypothesis profiles. A failure of the last two is repeated with `--hypothesis-seed=N` as printed.

ci        what `make test` runs, the default; always the same examples: what passed once passes again
quick     a first look while writing code, other examples each time:   HYPOTHESIS_PROFILE=quick
long      the search for new cases, some hours:                        make test-long

Tests in modules that use Hypothesis have the marker `property`: `pytest -m property`.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

_COMMON = {
    "deadline": None,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("ci", max_examples=8, derandomize=True, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("quick", max_examples=8, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("long", max_examples=500, **_COMMON)  # type: ignore[arg-type]
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark property tests; Hypothesis itself marks none whose property is a function inside the test."""
    for item in items:
        if hasattr(getattr(item, "module", None), "given"):
            item.add_marker("property")

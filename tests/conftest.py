"""Hypothesis profiles. A failure is repeated with `--hypothesis-seed=N` as printed.

ci        what `make test` runs; the default
quick     a first look while writing code:   HYPOTHESIS_PROFILE=quick
long      a night's search:                  HYPOTHESIS_PROFILE=long
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

_COMMON = {
    "deadline": None,
    "derandomize": False,
    "print_blob": True,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("ci", max_examples=8, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("quick", max_examples=8, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("long", max_examples=5000, **_COMMON)  # type: ignore[arg-type]
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

"""Many kills of a server, in parts: a part has a folder, a seed and clients of its own, and checks them.

The result of a part is stored when it is done, so runs that were interrupted go on with the next part. Runs
are numbered through all parts, so each step has its turn. A fault of the machine (no socket, no memory) is
no failure of the server: it is reported, and the part is repeated.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tocsin.errors import UsageError
from tocsin.lab.chaos.servers import ServerChaos, ServerChaosResult
from tocsin.server.steps import STEPS

__all__ = ["PART", "ServerChaosParts"]

PART = 2 * len(STEPS)  # runs: each step once, and as many random moments
_TRIES = 3  # of a part, if the machine fails


@dataclass
class ServerChaosParts:
    """So many runs, with seeds from `seed` on, in a folder."""

    runs: int
    seed: int = 0
    folder: Path | None = None
    say: Callable[[str], object] = print
    part: int = PART
    faults: list[str] = field(default_factory=list)

    def run(self) -> ServerChaosResult:
        """Run what is not done yet, or until something is wrong; the folder is kept then."""
        base = self.folder or Path(tempfile.mkdtemp(prefix="tocsin-server-chaos-"))
        base.mkdir(parents=True, exist_ok=True)
        self._check_setting(base / "setting.json")
        total = ServerChaosResult()
        try:
            for first in range(0, self.runs, self.part):
                total.add(self._part(base, first, min(self.part, self.runs - first)))
                self.say(f"{total.runs} of {self.runs} kills: {total.lines()[2]}")
                if not total.is_right:
                    break
        except KeyboardInterrupt:
            self.say(f"interrupted; it goes on with --seed {self.seed} --runs {self.runs} --dir {base}")
        else:
            if total.is_right and self.folder is None:
                shutil.rmtree(base, ignore_errors=True)
        total.asked, total.faults = self.runs, self.faults
        if not total.is_right:
            self.say(f"NOT right, kept in {base}")
        return total

    def _part(self, base: Path, first: int, runs: int) -> ServerChaosResult:
        done, folder = base / f"part-{first}.json", base / f"part-{first}"
        if done.exists():
            return ServerChaosResult.from_dict(json.loads(done.read_text()))
        for left in reversed(range(_TRIES)):
            shutil.rmtree(folder, ignore_errors=True)  # of a try that was interrupted
            try:
                result = ServerChaos(self.seed + first, folder, self.say, first=first).run(runs)
                break
            except Exception as error:
                self.faults.append(f"runs from {first}: {type(error).__name__}: {error}")
                self.say(f"fault, not of the server: {self.faults[-1]}")
                if not left:
                    raise
        if result.ok:
            shutil.rmtree(folder, ignore_errors=True)
            done.with_suffix(".new").write_text(json.dumps(result.to_dict()))
            done.with_suffix(".new").replace(done)
        return result

    def _check_setting(self, file: Path) -> None:
        """Results in a folder are of one seed."""
        setting: dict[str, Any] = {"seed": self.seed, "part": self.part}
        if file.exists():
            known = json.loads(file.read_text())
            if known != setting:
                raise UsageError(
                    f"{file.parent} has runs of --seed {known['seed']}", hint="choose another --dir"
                )
        file.write_text(json.dumps(setting))

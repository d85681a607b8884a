"""The oracle of the shrinker: replays scenarios (records and judges them), and keeps the results in
the folder of the failure.

failures/<name>/smallest.toml      the smallest scenario so far that fails
failures/<name>/report.json        the result, written at the end
failures/<name>/tries.jsonl        each replay: digest of the scenario, kinds, verdict, seconds
failures/<name>/runs/              run directories of replays in progress
failures/<name>/failed/<digest>/   the first run directory with this failure of a scenario that may
                                   become the result
failures/<name>/evidence/          that of the result, written at the end
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from linkflap.chaos import scenario_file
from linkflap.harness.machine import untrusted_files
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.rundir import with_current_kinds, write_whole
from linkflap.suite.failures import alike, era_of, kinds_of, same
from linkflap.suite.shrink import Rate
from linkflap.suite.work import Finished, Task, Workers

EVIDENCE: Final = "evidence"
FAILED: Final = "failed"
_COUNTED_FROM = 1_000_000
"""Replays have numbers above this one, so that none equals the number of a run of the suite."""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """One replay. `era` is that of its first anomaly of the kind of failure."""

    scenario: str
    kinds: tuple[str, ...]
    era: str = ""
    verdict: str
    seconds: float


def digest(scenario: Scenario) -> str:
    """A short digest of a scenario. After a kill, finished replays are found by it."""
    return hashlib.sha256(scenario_file.render(scenario).encode()).hexdigest()[:12]


@dataclass(slots=True, kw_only=True)
class Replays:
    """Replays scenarios of one failure (its kind and era) in `folder`, for at most `seconds`.
    Replays that an earlier session finished are not repeated."""

    folder: Path
    kind: str
    works: Workers
    seconds: float
    era: str = ""
    width: int = 2
    _began: float = field(default_factory=time.monotonic)
    _made: int = 0
    _tries: list[Replay] = field(default_factory=list)
    _left: dict[int, Replay] = field(default_factory=dict)
    _accepted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        shutil.rmtree(self.folder / "runs", ignore_errors=True)  # left by a killed session
        (self.folder / "runs").mkdir(parents=True)
        path = self.folder / "tries.jsonl"
        try:
            content = untrusted_files.content(path) if os.path.lexists(path) else b""
        except OSError as error:
            raise InputError(
                f"{path} cannot be read ({error.strerror}); remove it: its replays are repeated"
            ) from None
        for line in content.splitlines(keepends=True):
            # A torn line is replayed again: it is only one try.
            with contextlib.suppress(msgspec.DecodeError):
                self._tries.append(untrusted_files.decoded(with_current_kinds(line), Replay))
        if content and not content.endswith(b"\n"):
            write_whole(path, b"".join(msgspec.json.encode(one) + b"\n" for one in self._tries))
        self._left = {id(one): one for one in self._tries}

    def accept(self, scenario: Scenario) -> None:
        """Keeps the evidence of this scenario, of those accepted earlier and of those that an
        earlier session replayed, and deletes that of all others."""
        self._accepted.add(digest(scenario))
        kept = self._accepted | {one.scenario for one in self._left.values()}
        for path in (self.folder / FAILED).glob("*"):
            if path.name not in kept:
                shutil.rmtree(path)

    def settle(self, scenario: Scenario) -> Path | None:
        """Makes the evidence of this scenario that of the failure, and deletes all other. Returns
        its run directory; None if the scenario never failed again."""
        found, evidence = self.folder / FAILED / digest(scenario), self.folder / EVIDENCE
        if found.exists():
            shutil.rmtree(evidence, ignore_errors=True)
            found.rename(evidence)
        shutil.rmtree(self.folder / FAILED, ignore_errors=True)
        return evidence if evidence.exists() else None

    def shrinks(self) -> None:
        """Starts the budget of time again: replays before shrinking do not count against it."""
        self._began = time.monotonic()

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return time.monotonic() - self._began >= self.seconds

    def __call__(self, candidates: Sequence[Scenario], *, times: int) -> list[Rate]:
        wanted = [(digest(made), made) for made in candidates]
        found: dict[str, list[Replay]] = {name: [] for name, _ in wanted}
        queue: list[Task] = []
        for name, made in wanted:
            found[name] += self._known(name, times)
            queue += [self._task(name, made) for _ in range(times - len(found[name]))]

        def done(finished: Finished) -> None:
            one = self._taken(finished)
            found[one.scenario].append(one)

        while queue or not self.works.idle:
            if interrupts.asked():
                raise KeyboardInterrupt
            if queue and self.works.room:
                self.works.start(queue.pop(0))
            self.works.step(more=bool(queue), done=done)
        return [
            Rate(
                failed=sum(self._failed(one) for one in found[name]),
                tries=len(found[name]),
            )
            for name, _ in wanted
        ]

    def _failed(self, one: Replay) -> bool:
        return same(self.kind, one.kinds) and alike(self.era, one.era)

    def _known(self, name: str, times: int) -> list[Replay]:
        """Replays of this scenario from an earlier session, at most `times`. Each is used once."""
        known = [key for key, one in self._left.items() if one.scenario == name][:times]
        return [self._left.pop(key) for key in known]

    def _task(self, name: str, made: Scenario) -> Task:
        self._made += 1
        number = _COUNTED_FROM + self._made
        path = self.folder / "runs" / f"{number}-{name}.toml"
        write_whole(path, scenario_file.render(made).encode())
        return Task(number=number, scenario=path, folder=self.folder / "runs" / f"{number}")

    def _taken(self, finished: Finished) -> Replay:
        """Appends a replay to tries.jsonl. Keeps its run directory as evidence if it is the first
        one of its scenario that failed in the same way, and deletes it otherwise."""
        task, document = finished.task, finished.document
        kinds = kinds_of(document) if document is not None else ()
        verdict = str(document["verdict"]) if document is not None else "unknown"
        one = Replay(
            scenario=task.scenario.stem.partition("-")[2],
            kinds=kinds,
            era=era_of(document, self.kind) if document is not None else "",
            verdict=verdict,
            seconds=finished.seconds,
        )
        # Before the line of the try: a session that resumes does not repeat it.
        failed = self.folder / FAILED / one.scenario
        if self._failed(one) and not failed.exists():
            failed.parent.mkdir(exist_ok=True)
            task.folder.rename(failed)
        with (self.folder / "tries.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(one) + b"\n")
        shutil.rmtree(task.folder, ignore_errors=True)
        task.scenario.unlink(missing_ok=True)
        task.folder.with_name(f"{task.folder.name}.log").unlink(missing_ok=True)
        return one

"""Plays a case on one variant: control and claim in turn, n times each, and whether the release
behaved as expected.

Cases that need the same clusters of the same Kafka share a bench.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from linkflap.chaos.cases.bench import Bench, Variant
from linkflap.chaos.cases.case import (
    Case,
    Expected,
    Observation,
    Outcome,
    interval,
    number,
    too_few,
    words,
)
from linkflap.harness.machine.java import java_for
from linkflap.harness.model.errors import INVALID, UNKNOWN, VALID, InputError, LinkflapError
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes.distribution import kafka as kafkas
from linkflap.harness.runtimes.distribution.cluster_mirroring import generation, lacking
from linkflap.harness.runtimes.process import deploy

_RUNS_PER_DEPLOYMENT: Final = 10
"""Between two runs the deployment is proven clean."""


class Benches:
    """The deployment that cases share while they want the same clusters of the same Kafka: one at a
    time, made when wanted.

    For use in a `with` block; `folder` is where deployments are, and goes with them unless `keep`.
    Their clusters have the settings and services of `like`, beside those of the case.
    """

    def __init__(
        self, folder: Path, *, keep: bool = False, like: ClusterSpec | None = None
    ) -> None:
        self._folder, self._keep, self._like = folder, keep, like
        self._ends = ExitStack()
        self._bench: Bench | None = None
        self._key: tuple[Topology, str, str] | None = None
        self._made, self._runs = 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()
        if not self._keep:
            shutil.rmtree(self._folder, ignore_errors=True)

    def lack(self, case: Case) -> str:
        """What the case needs of these clusters and they do not have; empty: nothing."""
        if case.services and not (self._like and self._like.services):
            return (
                "brokers with a control plane and a store in common: --like FILE, a scenario file "
                "with [cluster.A.service]"
            )
        return ""

    def prepare(self, variant: Variant) -> None:
        """Fetches the Kafka and a Java that runs it. Raises SetupError, because no run is possible
        without them."""
        java_for(kafkas.kafka(variant.kafka).version)

    def drop(self) -> None:
        """Ends the deployment: the next run gets a new one."""
        self._bench = self._key = None
        self._ends.close()

    def bench(self, case: Case, variant: Variant) -> Bench:
        """A clean deployment that fits the case. Raises LinkflapError when it cannot be started."""
        key = case.on(variant.kafka, self._like), variant.kafka, variant.transactions
        if self._bench is None or self._key != key or self._runs >= _RUNS_PER_DEPLOYMENT:
            self.drop()
            self._made += 1
            self._runs = 0
            self._bench = self._deployed(key[0], variant, self._folder / str(self._made))
            self._key = key
        self._runs += 1
        self._bench.variant = variant
        self._bench.topic_settings = case.topics
        self._bench.begin(f"{self._runs}-{case.name}")
        return self._bench

    def _deployed(self, topology: Topology, variant: Variant, folder: Path) -> Bench:
        folder.mkdir(parents=True)
        events = self._ends.enter_context(closing(EventLog(folder / "events.jsonl")))
        up = self._ends.enter_context(deploy(topology, folder=folder / "clusters", recorder=events))
        bench = Bench(up, variant, events, folder)
        _prepare(bench, variant)
        return bench


def _prepare(bench: Bench, variant: Variant) -> None:
    if variant.transactions != "V1":
        return
    for name in bench.deployment.clusters:
        asked = bench.ask(bench.up(name))
        if asked.features().get("transaction.version", 0) > 1:
            asked.downgrade("transaction.version", 1)
    bench.end()


_FAILURES_IN_A_ROW: Final = 3
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The result of the runs of a case on one variant. `version` is the release that ran; `facts`
    are those of the first run that showed the anomaly, or of the last one; `why` is what is needed,
    or why the result is unknown."""

    case: str
    variant: Variant
    version: str
    outcome: Outcome
    shown: int
    runs: int
    needed: int
    controls: int
    failures: tuple[str, ...] = ()
    expected: Expected | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    control_facts: Mapping[str, object] = field(default_factory=dict)
    seconds: float = 0.0
    why: str = ""

    @property
    def exit_code(self) -> int:
        """0: what is expected of this release happened; 1: it did not; 2: not known, or something
        is needed."""
        if self.outcome in (Outcome.NEEDS, Outcome.UNKNOWN):
            return UNKNOWN
        return exit_code(self.expected, shown=self.shown, runs=self.runs, needed=self.needed)

    @property
    def words(self) -> str:
        """For example: REPRODUCED 3 of 3 (44 to 100 %). Too few runs never count as NOT
        REPRODUCED."""
        if self.outcome in (Outcome.NEEDS, Outcome.UNKNOWN):
            return f"{self.outcome}: {self.why}"
        if self.outcome is Outcome.NOT_REPRODUCED and self.runs < self.needed:
            return f"{Outcome.UNKNOWN}: {too_few(self.runs, self.needed)}"
        return f"{self.outcome} {words(self.shown, self.runs)}"

    @property
    def bounds(self) -> tuple[float, float]:
        return interval(self.shown, self.runs)


def exit_code(expected: Expected | None, *, shown: int, runs: int, needed: int) -> int:
    """Compares `shown` of `runs` with an expectation: 0 as expected, 1 not, 2 if nothing is
    expected, or in too few runs."""
    if expected is None or (not shown and runs < needed):
        return UNKNOWN
    return VALID if bool(shown) == expected.shows else INVALID


class _Played:
    """The result of the runs so far."""

    def __init__(self) -> None:
        self.claims: list[Observation] = []
        self.controls: list[Observation] = []
        self.failures: list[str] = []
        self.row = 0

    def add(self, seen: Observation, control: Observation) -> None:
        self.claims.append(seen)
        self.controls.append(control)
        self.row = 0

    def failed(self, why: str) -> None:
        self.failures.append(why)
        self.row += 1


def run_case(
    case: Case,
    variant: Variant | None = None,
    *,
    count: int | None = None,
    benches: Benches,
    report: Report = lambda _: None,
) -> CaseResult:
    """Plays the case `count` times (its own number by default). Raises InputError, and SetupError
    without a Kafka or a Java.

    A run whose steps failed counts for nothing and is reported; three in a row end the case.
    """
    variant = variant or Variant(client=case.clients[0], transactions=case.protocols[0])
    check(case, variant)
    began = time.monotonic()
    wanted = case.runs if count is None else count
    version = version_of(variant)
    played = _Played()
    if why := needs(case, variant) or benches.lack(case):
        return _result(case, variant, version, played, why=why)
    benches.prepare(variant)
    while len(played.claims) < wanted and played.row < _FAILURES_IN_A_ROW:
        try:
            if not _one_run(case, variant, benches, played, report):
                benches.drop()
        except _Lacks as lacks:
            return _result(case, variant, version, played, why=str(lacks))
    return _result(case, variant, version, played, seconds=time.monotonic() - began)


def check(case: Case, variant: Variant) -> None:
    """Raises InputError for a client, transaction protocol or Kafka that the case cannot be played
    with; starts nothing."""
    if variant.client not in case.clients:
        raise InputError(
            f"{case.name} is not played by {variant.client}; it is by {', '.join(case.clients)}"
        )
    if variant.transactions not in case.protocols and variant.transactions:
        known = ", ".join(filter(None, case.protocols)) or "what the release starts with alone"
        raise InputError(
            f"{case.name} is not played with transactions {variant.transactions}; it is with "
            f"{known}"
        )
    kafkas.look_for(variant.kafka)


def needs(case: Case, variant: Variant) -> str:
    """The needs of a case that this Kafka does not meet, as far as that can be known before it
    runs; empty if there are none."""
    release = version_of(variant).partition("-")[0]  # a build says 4.2.0-SNAPSHOT
    if release and number(release) < number(case.oldest):
        return f"Kafka {case.oldest} or later"
    if not case.needs:
        return ""
    build = kafkas.look_for(variant.kafka)
    if build is None:
        return case.needs
    if case.build and not generation(build):
        return f"{variant.kafka} {lacking(build)}"
    unknown = case.unknown(build)
    return f"{case.needs}; {variant.kafka} does not know {', '.join(unknown)}" if unknown else ""


class _Lacks(Exception):
    """Only brokers that run can tell that they lack what a case needs."""


def _take_transactions(bench: Bench) -> None:
    """Raises _Lacks if topics with the settings of the case take no transactions."""
    writer = bench.wire_transactional("probe")
    answer = writer.add((bench.topic("probe"), 0))
    if answer != "none":
        settings = ", ".join(f"{name}={value}" for name, value in bench.topic_settings.items())
        raise _Lacks(
            f"a build whose topics with {settings} take transactions; this one answers "
            f"AddPartitionsToTxn with {answer}"
        )
    writer.end(commit=False)


def version_of(variant: Variant) -> str:
    """The release of a variant, before anything is fetched where it is given by number."""
    local = kafkas.look_for(variant.kafka)
    return local.version if local else variant.kafka


def _one_run(
    case: Case, variant: Variant, benches: Benches, played: _Played, report: Report
) -> bool:
    """One control and one claim; False when what it left behind is not known to be clean."""
    index = len(played.claims) + 1
    bench = None
    try:
        bench = benches.bench(case, variant)
        stamp = bench.stamp
        if case.transactions:
            _take_transactions(bench)
        bench.begin(f"{stamp}-control")
        control = case.play_control(bench)
        bench.end()
        if case.apart:
            benches.drop()
            bench = benches.bench(case, variant)
        bench.settle()
        bench.begin(stamp)
        seen = case.play(bench)
    except (InputError, _Lacks):
        raise
    except Exception as error:  # noqa: BLE001  (steps and clients meet anything: such a run counts for nothing, and is reported)
        played.failed(f"run {index}: {type(error).__name__}: {error}")
        report(played.failures[-1])
        return False
    finally:
        if bench is not None:
            bench.end()
    played.add(seen, control)
    if case.apart:
        benches.drop()
    report(
        f"run {index}: {'shown' if seen.shown else 'not shown'}; control: "
        f"{'shown' if control.shown else 'not shown'}"
    )
    try:
        if not case.apart:
            bench.settle()
    except LinkflapError as error:
        report(f"the deployment is not clean and is made anew: {error}")
        return False
    return True


def _result(
    case: Case,
    variant: Variant,
    version: str,
    played: _Played,
    *,
    seconds: float = 0.0,
    why: str = "",
) -> CaseResult:
    wrong = sum(one.shown != case.control_shows for one in played.controls)
    shown, runs = sum(one.shown for one in played.claims), len(played.claims)
    if why:
        outcome = Outcome.NEEDS
    elif wrong:
        verb = "did not show it" if case.control_shows else "showed it"
        outcome, why = Outcome.UNKNOWN, f"the control {verb} in {wrong} of {runs} runs"
    elif not runs:
        outcome, why = Outcome.UNKNOWN, f"no run came to its end: {played.failures[-1]}"
    else:
        outcome = Outcome.REPRODUCED if shown else Outcome.NOT_REPRODUCED
    best = next(
        (one for one in played.claims if one.shown),
        played.claims[-1] if played.claims else Observation(shown=False),
    )
    return CaseResult(
        case=case.name,
        variant=variant,
        version=version,
        outcome=outcome,
        shown=shown,
        runs=runs,
        needed=case.runs,
        controls=len(played.controls) - wrong,
        failures=tuple(played.failures),
        expected=case.expectation(variant, version),
        facts=best.facts,
        control_facts=played.controls[-1].facts if played.controls else {},
        seconds=round(seconds, 1),
        why=why,
    )

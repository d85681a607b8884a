"""Benches that cases share if they need the same clusters of the same Kafka."""

from __future__ import annotations

import shutil
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final, Self

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case
from linkflap.chaos.cases.variant import Variant
from linkflap.harness.machine.java import java_for
from linkflap.harness.model.topology import Topology
from linkflap.harness.rundir import EventLog
from linkflap.harness.runtimes.distribution import kafka as kafkas
from linkflap.harness.runtimes.process import deploy

_RUNS_PER_DEPLOYMENT: Final = 10
"""It is proven clean between them."""


class Benches:
    """The deployment that cases share while they want the same clusters of the same Kafka: one at a
    time, made when wanted.

    For use in a `with` block; `folder` is where deployments are, and goes with them unless `keep`.
    """

    def __init__(self, folder: Path, *, keep: bool = False) -> None:
        self._folder, self._keep = folder, keep
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

    def prepare(self, variant: Variant) -> None:
        """Fetches the Kafka and a Java that runs it. Raises SetupError, because no run is possible
        without them."""
        java_for(kafkas.kafka(variant.kafka).version)

    def drop(self) -> None:
        """Ends the deployment: the next run gets a new one."""
        self._bench = self._key = None
        self._ends.close()

    def bench(self, case: Case, variant: Variant) -> Bench:
        """A deployment of what the case wants, and clean. Raises LinkflapError when it cannot be
        started."""
        key = case.on(variant.kafka), variant.kafka, variant.transactions
        if self._bench is None or self._key != key or self._runs >= _RUNS_PER_DEPLOYMENT:
            self.drop()
            self._made += 1
            self._runs = 0
            self._bench = self._deployed(case, variant, self._folder / str(self._made))
            self._key = key
        self._runs += 1
        self._bench.variant = variant
        self._bench.begin(f"{self._runs}-{case.name}")
        return self._bench

    def _deployed(self, case: Case, variant: Variant, folder: Path) -> Bench:
        folder.mkdir(parents=True)
        events = self._ends.enter_context(closing(EventLog(folder / "events.jsonl")))
        up = self._ends.enter_context(
            deploy(case.on(variant.kafka), folder=folder / "clusters", recorder=events)
        )
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

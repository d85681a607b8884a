"""What a run records of captures, failovers and faults, and which parts are missing in its
directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from linkflap.harness.model.clock import now
from linkflap.harness.model.scenario import FaultSpec
from linkflap.spark_verify.read.plan import plan
from tests.unit.checks.judged_runs import LINK, Recorded

BACK = "B->A"


def captured(run: Recorded, *partitions: str, moment: str = "end") -> None:
    for cluster in partitions:
        folder = run.folder / "captures" / moment / cluster / "1" / "A.t-0"
        folder.mkdir(parents=True)
        (folder / "0.log").write_bytes(b"")
        run.event("captured", cluster, moment=moment, replicas=1)


def stopped(run: Recorded, *partitions: tuple[str, int], link: str = LINK) -> None:
    rows = [
        {"topic": topic, "partition": partition, "mirrored": 3, "promoted": 3}
        for topic, partition in partitions
    ]
    run.event("mirror-stopped", link, drained=True, partitions=rows)


def failed_over(
    run: Recorded,
    *partitions: int,
    link: str = LINK,
    journal: Sequence[tuple[str, int]] | None = None,
) -> None:
    if journal is not None:
        stopped(run, *journal, link=link)
    for partition in partitions:
        run.event("promotion", link, cluster=link[-1], topic="A.t", partition=partition, offset=3)
    run.event("failover", link, kind="planned", fault_time=now())


def missing(folder: Path) -> list[tuple[str, str]]:
    """The damage of a directory, without its files."""
    return [
        (d.path, d.reason)
        for d in plan(folder).damage
        if (folder / d.path).is_dir() or not (folder / d.path).exists()
    ]


def promises(folder: Path) -> list[str]:
    return [d.reason for d in plan(folder).damage if d.path == "events.jsonl"]


AWAY = FaultSpec(id="away", fault="failover-forced", target=LINK, at=1.0, duration=0.0)


HOME = FaultSpec(
    id="home", fault="mirror-reverse", target=LINK, at=1.0, duration=0.0, when="after:away"
)


def played(run: Recorded, *, lacks: tuple[str, ...] = (), bit: bool = True) -> None:
    """The failover and the reversal, as a run records them, without the events of these kinds."""

    def event(kind: str, subject: str, **data: object) -> None:
        if f"{data.get('id', subject)} {kind}" not in lacks and kind not in lacks:
            run.event(kind, subject, **data)

    for spec in (AWAY, HOME):
        event("fault-start", LINK, id=spec.id, fault=spec.fault)
        if spec is HOME:
            event("mirror-started", BACK, mirror="shadow")
        elif "failover" not in lacks:
            failed_over(run, 0, journal=None if "mirror-stopped" in lacks else [("A.t", 0)])
        if spec is AWAY:
            event("clients-moved", "A", to="B")
        event("fault-bite", LINK, id=spec.id, bit=bit)
        event("fault-heal", LINK, id=spec.id, healed=bit)
        event("fault-end", LINK, id=spec.id)

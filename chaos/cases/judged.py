"""Cases that record and judge a whole run: a check finds the anomaly.

Their scenario files name the Kafka under test as `@KAFKA`. If claim and control differ, the case
also replaces other words of the file. The file has its own clusters: the case's topology is empty.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.harness.machine import children
from linkflap.harness.model.errors import INVALID, VALID, EnvironmentFailure
from linkflap.harness.model.topology import Topology
from linkflap.harness.runtimes.distribution.kafka import look_for

FILES: Final = Path(__file__).parent / "scenarios"
NONE: Final = Topology(clusters=(), links=())
"""For cases whose clusters are those of a scenario file."""
_WITHIN: Final = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseVerdict:
    """A run's verdict; `anomalies`: check -> kind of anomaly -> number; `examined`: the number of
    things that all checks examined."""

    verdict: str
    reason: str
    anomalies: Mapping[str, Mapping[str, int]]
    examined: int

    @property
    def kinds(self) -> frozenset[str]:
        """Every kind of anomaly, as `check/kind`."""
        return frozenset(
            f"{check}/{kind}" for check, kinds in self.anomalies.items() for kind in kinds
        )

    @property
    def facts(self) -> dict[str, object]:
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "anomalies": {check: dict(kinds) for check, kinds in self.anomalies.items()},
            "examined": self.examined,
        }


def judged(bench: Bench, file: str, changes: Mapping[str, str]) -> CaseVerdict:
    """Records and judges a scenario file with these words changed. Raises EnvironmentFailure if
    there is no usable verdict.

    A verdict of unknown is not usable either, unless it is for a check that had anomalies.
    """
    text = changed(file, bench.variant.kafka, changes)
    scenario, run = bench.folder / f"{bench.stamp}.toml", bench.folder / bench.stamp
    scenario.write_text(text)
    command, environment = children.module("linkflap", "run", str(scenario), "--out", str(run))
    output = bench.folder / f"{bench.stamp}.log"
    status = children.run(
        command,
        name=f"scenario {file}",
        folder=bench.folder,
        output=output,
        within=_WITHIN,
        environment=environment,
    )
    if status not in (VALID, INVALID):
        last = output.read_text(errors="replace").strip().splitlines()[-1:]
        raise EnvironmentFailure(f"scenario {file} ended with {status}: {''.join(last)[:300]}")
    return of_verdict(json.loads((run / "verdict.json").read_bytes()))


def changed(file: str, kafka: str, changes: Mapping[str, str]) -> str:
    """The text of a scenario file for one Kafka, with these words changed. Raises
    EnvironmentFailure."""
    # The file is played from another folder: there a directory has to be named in full.
    named = Path(kafka).expanduser().resolve() if look_for(kafka) else kafka
    text = (FILES / file).read_text().replace("@KAFKA", f"@{named}")
    for old, new in changes.items():
        if old not in text:
            raise EnvironmentFailure(
                f"scenario {file} does not say {old!r}; the case and the file have to fit"
            )
        text = text.replace(old, new)
    return text


def of_verdict(document: Mapping[str, object]) -> CaseVerdict:
    """Reads a verdict.json."""
    checks: list[dict[str, object]] = document["checks"]  # type: ignore[assignment]
    return CaseVerdict(
        verdict=str(document["verdict"]),
        reason=str(document["reason"]),
        anomalies={str(check["name"]): check["kinds"] for check in checks if check["kinds"]},  # type: ignore[misc]
        examined=sum(sum(check["examined"].values()) for check in checks),  # type: ignore[attr-defined, misc]
    )


SHORT = {"duration = 4.0": "duration = 0.3", "during:cut": "after:cut"}
"""The link is restored, and everything is mirrored, before A is given up: there is nothing to
truncate."""
PLANNED = {
    'fault = "failover-forced"': 'fault = "failover-planned"',
    'options = { source = "stalled" }': "",
}


@case("KIP-1279-beyond-truncation", NONE, claim={"tail": True}, control={"tail": False})
def beyond_truncation(bench: Bench, *, tail: bool) -> Observation:
    """KIP-1279 itself: a reader whose position is beyond the truncation offset of a failback
    continues there."""
    found = judged(bench, "beyond-truncation.toml", {} if tail else SHORT | PLANNED)
    return Observation(
        shown="poll-continuity/skipped-by-truncation" in found.kinds, facts=found.facts
    )


STALLED = 'options = { source = "stalled" }'


@case("KIP-1279-dead-source", NONE, claim={"dead": True}, control={"dead": False})
def failover_refused(bench: Bench, *, dead: bool) -> Observation:
    """KIP-1279 itself: a build of its branch refuses a failover while the source is dead."""
    found = judged(bench, "dead-source.toml", {STALLED: ""} if dead else {STALLED: STALLED})
    return Observation(shown="failover/failover-refused" in found.kinds, facts=found.facts)


@case("VK3-flap-storm", NONE, claim={"ids": "jump"}, control={"ids": "negate"})
def flap_storm(bench: Bench, ids: str) -> Observation:
    """VK3 on unmodified brokers: a link flaps continuously, and the mirrored log is judged."""
    found = judged(bench, "flap-storm.toml", {'producer_ids = "jump"': f'producer_ids = "{ids}"'})
    return Observation(shown=found.verdict != "valid", facts=found.facts)


@case("kept-ids-under-load", NONE, claim={"ids": "keep"}, control={"ids": "jump"})
def kept_ids(bench: Bench, ids: str) -> Observation:
    """Kept producer ids under load: a forced failover of a mirror that keeps the source's ids,
    judged by acknowledgements and bytes."""
    found = judged(bench, "kept-ids.toml", {'producer_ids = "keep"': f'producer_ids = "{ids}"'})
    return Observation(shown="ghost-ack/ghost-ack" in found.kinds, facts=found.facts)


@case(
    "MM2-isolation-under-load",
    NONE,
    claim={"isolation": "read_uncommitted"},
    control={"isolation": "read_committed"},
)
def mirror_maker_aborted(bench: Bench, isolation: str) -> Observation:
    """MirrorMaker 2 with read_uncommitted under load: the records of the target's readers, judged
    by their polls and both logs."""
    found = judged(bench, "mm2-isolation.toml", {"read_uncommitted-by-the-mirror": isolation})
    return Observation(shown="aborted-read/aborted-read" in found.kinds, facts=found.facts)

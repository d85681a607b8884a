"""Every built-in scenario, recorded both ways at once: by linkflap's own clients, and by recorders
on the wire that these clients pass. The histories differ only as docs/own-application.md says, and
the checks judge both alike."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Final

import pytest

from linkflap.chaos.scenarios import SCENARIOS, ScenarioRequest, scenario
from linkflap.harness.model.verdict import CheckResult
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.verdict.judge import Judgement
from tests.both_recordings import differences, judged, recorded_both_ways

pytestmark = pytest.mark.nightly
_DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "own-application.md"
CLEANED: Final = "compacted, and whether a cleaner took them cannot be known"
PLAYED: Final = [*((name, "shadow") for name in SCENARIOS), ("link-flap", "mm2")]
"""Scenarios, and their mirrors."""
ANEW: Final = "skipped-by-truncation"
"""A reader that stays where it was has a new connection after its broker was down: on the wire it
begins anew."""


def known() -> set[str]:
    """The classes of differences that the document explains."""
    table = _DOCUMENT.read_text().partition("## A client and the wire")[2]
    return set(re.findall(r"^\| ([^|`]+?) \|", table, re.MULTILINE)) - {"difference"}


def judged_apart(own: Judgement, wire: Judgement) -> list[str]:
    """The checks whose verdicts differ, although the wire shows what they examine, and anomalies
    that only one of the two has."""
    theirs = {check.name: check for check in wire.checks}
    unshown = {name for name, check in theirs.items() if _unshown(check)}
    apart = [
        f"{check.name}: {check.verdict} {check.reason}, on the wire {other.verdict} {other.reason}"
        for check in own.checks
        if (other := theirs[check.name]).verdict != check.verdict and check.name not in unshown
    ]
    only = _anomalies(own, but=unshown) ^ _anomalies(wire, but=unshown)
    return [*apart, *(f"only one has {each}" for each in sorted(only) if each[1] != ANEW)]


def _anomalies(judgement: Judgement, *, but: set[str]) -> set[tuple[str, str, str, str, int]]:
    return {
        (a.check, a.kind, a.cluster, f"{a.topic}-{a.partition}", a.offset)
        for a in judgement.anomalies
        if a.check not in but
    }


def _unshown(check: CheckResult) -> bool:
    """Whether the wire does not show what a check examines, and its declaration says so."""
    says = REGISTRY[check.name].wire if check.name in REGISTRY else ""
    if check.verdict == "unknown":
        return "compacted" in says and check.reason.endswith(CLEANED)
    return check.verdict == "not due" and says.startswith(("Nothing", "Nobody"))


@pytest.mark.parametrize(("name", "mirror"), PLAYED)
def test_both_recordings_of_a_scenario_agree(name: str, mirror: str, tmp_path: Path) -> None:
    asked = ScenarioRequest(seed=secrets.randbits(32), mirror=mirror)
    own, wire = recorded_both_ways(scenario(name, asked), tmp_path)
    found = differences(own, wire)
    assert {which: count for which, count in found.items() if which not in known()} == {}
    assert judged_apart(judged(own), judged(wire)) == []

"""The definition of a case: a claim about Kafka, its source, the releases where it should show, the
steps that show it, and its control.

A case is a value and two functions. `claim` plays the smallest known schedule. `control` plays the
same without the alleged cause. Both return their observations. For a guarantee, no release is
expected to show the anomaly. Its control is then a client without the guarantee that must show the
anomaly, which proves that the observation can find it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal

from linkflap.chaos.cases.variant import Client, Protocol, Variant
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import Topology

if TYPE_CHECKING:
    from linkflap.chaos.cases.bench import Bench

Kind = Literal["defect", "limit", "guarantee", "proposal"]
"""A defect of a release; a documented or accepted limit; a guarantee that must hold; a proposal or
warning of a KIP's thread."""
VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
LARGEST: Final = (1 << 31, 0, 0)


class Outcome(StrEnum):
    """The result of all runs of a case."""

    REPRODUCED = "REPRODUCED"
    NOT_REPRODUCED = "NOT REPRODUCED"
    NEEDS = "NEEDS"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The observation of one run of claim or control: whether the anomaly showed, and the facts
    that prove it, as plain JSON values."""

    shown: bool
    facts: Mapping[str, object] = field(default_factory=dict)


Steps = Callable[["Bench"], Observation]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Where the anomaly should show: releases from `since` to `until`, both included; empty: no
    bound.

    `basis`: from runs of this case, or from reading code, a JIRA issue or a mail.
    """

    shows: bool
    since: str = ""
    until: str = ""
    clients: tuple[Client, ...] = ()
    transactions: Protocol = ""
    basis: Literal["runs", "reading"] = "reading"

    def covers(self, variant: Variant, version: tuple[int, int, int]) -> bool:
        """Whether this is about that variant, whose Kafka reports this version."""
        within = (
            number(self.since or "0.0.0")
            <= version
            <= (number(self.until) if self.until else LARGEST)
        )
        return (
            within
            and (not self.clients or variant.client in self.clients)
            and (not self.transactions or self.transactions == variant.transactions)
        )

    @property
    def words(self) -> str:
        """For example: 4.3.0 to 4.3.1, java: shows (runs)."""
        bounds = {
            (False, False): "every release",
            (True, False): f"{self.since} and later",
            (False, True): f"up to {self.until}",
            (True, True): f"{self.since} to {self.until}",
        }[bool(self.since), bool(self.until)]
        who = ", ".join(
            [*self.clients, *([f"transactions {self.transactions}"] if self.transactions else [])]
        )
        return (
            f"{bounds}{f', {who}' if who else ''}: {'shows' if self.shows else 'does not show'} "
            f"({self.basis})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case. Texts are sentences for a person; `name` is what a command takes.

    `sources` name who claims it and where. `runs` is the number of runs that an answer takes: a
    race that one run in ten shows needs 30 for a NOT REPRODUCED. `schedule` is the smallest
    schedule known. `oldest` is the first release on which the steps can be played.
    `runs_per_deployment`: the number of runs that one deployment serves, if it is proven clean
    between them; `apart`: control and claim get separate clusters, because a mirror that has failed
    over leaves them changed. `needs`: a feature that no release has, so that the Kafka must be a
    directory: a build of a KIP. `tried`: if it did not show although it should, the attempts and
    the observations.
    """

    name: str
    title: str
    kind: Kind
    claim_text: str
    sources: tuple[str, ...]
    expected: tuple[Expected, ...]
    schedule: str
    reproduced: str
    control_text: str
    refuted: str
    topology: Topology
    claim: Steps
    control: Steps
    control_shows: bool = False
    runs: int = 3
    clients: tuple[Client, ...] = ("librdkafka",)
    protocols: tuple[Protocol, ...] = ("",)
    oldest: str = "3.7.0"
    runs_per_deployment: int = 10
    apart: bool = False
    needs: str = ""
    tried: str = ""

    def expectation(self, variant: Variant, version: str) -> Expected | None:
        """The first expectation that speaks of this variant; None when nothing is known of it."""
        found = VERSION.match(version)
        if found is None:
            return None
        here = number(found.group())
        return next((one for one in self.expected if one.covers(variant, here)), None)

    def on(self, kafka: str) -> Topology:
        """The topology with every cluster of this Kafka."""
        from dataclasses import replace

        return replace(
            self.topology,
            clusters=tuple(replace(cluster, kafka=kafka) for cluster in self.topology.clusters),
        )


def number(version: str) -> tuple[int, int, int]:
    """A release as three numbers. InputError for anything else."""
    found = VERSION.fullmatch(version)
    if found is None:
        raise InputError(f"{version!r} is no release; write one as 4.3.1")
    return int(found[1]), int(found[2]), int(found[3])

"""The definition of a case: a claim about Kafka, its source, the releases where it should show, the
steps that show it, and its control.

The text of a case is `claims/NAME.toml`. Its steps are one function, registered by `case`: with the
arguments of the claim it plays the smallest known schedule, with those of the control the same
without the alleged cause. It returns its observation. For a guarantee, no release is expected to
show the anomaly. Its control is then a client without the guarantee that must show the anomaly,
which proves that the observation can find it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

from linkflap.chaos.cases.bench import Client, TransactionProtocol, Variant
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.runtimes.distribution.kafka import Kafka
from linkflap.harness.runtimes.distribution.kafka_settings import BROKER, TOPIC, knows

if TYPE_CHECKING:
    from linkflap.chaos.cases.bench import Bench
import math

Kind = Literal["defect", "limit", "guarantee", "proposal"]
"""A defect of a release; a documented or accepted limit; a guarantee that must hold; a proposal or
warning of a KIP's thread."""
VERSION: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)")
LARGEST: Final = (1 << 31, 0, 0)
CLAIMS: Final = Path(__file__).parent / "claims"


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
_Steps = TypeVar("_Steps", bound=Callable[..., Observation])
_REGISTERED: Final[dict[str, Case]] = {}


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
    transactions: TransactionProtocol = ""
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
class CaseText:
    """The text of a case: sentences for a person, and what a command needs to know before it plays.

    `claim` says what happens and why; `sources` name who claims it and where. `schedule` is the
    smallest schedule known, `control` says how the control differs. `reproduced` and `refuted` say
    what is observed in each case; `control_shows`: the control has to show the anomaly. `runs` is
    the number of runs that an answer takes: a race that one run in ten shows needs 30 for a NOT
    REPRODUCED. `oldest` is the first release on which the steps can be played, `build`: only on a
    build of the KIP-1279 branch. `services`: only on clusters with the services of a scenario file,
    because brokers have a control plane and a store in common. `transactions`: only where topics
    with the case's settings take transactions. `apart`: control and claim get separate clusters,
    because a mirror that has failed over leaves them changed. `tried`: if it did not show although
    it should, the attempts and the observations.
    """

    title: str
    kind: Kind
    claim: str
    schedule: str
    reproduced: str
    control: str
    refuted: str
    sources: tuple[str, ...] = ()
    expected: tuple[Expected, ...] = ()
    control_shows: bool = False
    runs: int = 3
    clients: tuple[Client, ...] = ("librdkafka",)
    protocols: tuple[TransactionProtocol, ...] = ("",)
    oldest: str = "3.7.0"
    build: bool = False
    services: bool = False
    transactions: bool = False
    apart: bool = False
    tried: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(CaseText):
    """One case. `name` is what a command takes; `play` and `play_control` are its steps, from
    `module`. `topics` are settings that every topic of it has, unless the steps say otherwise."""

    name: str
    module: str = ""
    topology: Topology
    play: Steps
    play_control: Steps
    topics: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs(self) -> str:
        """A feature that no release has, so that the Kafka must be a directory; empty: nothing."""
        if self.build:
            return "a build of the KIP-1279 branch (--kafka DIRECTORY)"
        if unknown := self.unknown(None):
            return f"a build that knows {', '.join(unknown)} (--kafka DIRECTORY)"
        return ""

    def unknown(self, build: Kafka | None) -> list[str]:
        """The settings of its brokers and topics that neither a release nor this build has."""
        of_brokers = {name for cluster in self.topology.clusters for name in cluster.config}
        wanted = ((BROKER, sorted(of_brokers)), (TOPIC, sorted(self.topics)))
        return [name for of, names in wanted for name in names if not knows(of, name, build)]

    def expectation(self, variant: Variant, version: str) -> Expected | None:
        """The first expectation that speaks of this variant; None when nothing is known of it."""
        found = VERSION.match(version)
        if found is None:
            return None
        here = number(found.group())
        return next((one for one in self.expected if one.covers(variant, here)), None)

    def on(self, kafka: str, like: ClusterSpec | None = None) -> Topology:
        """The topology with every cluster of this Kafka, and with the settings and services of
        another one beside its own."""
        like = like or ClusterSpec(name="A")
        return replace(
            self.topology,
            clusters=tuple(
                replace(
                    cluster,
                    kafka=kafka,
                    config={**like.config, **cluster.config},
                    services=like.services,
                )
                for cluster in self.topology.clusters
            ),
        )


def number(version: str) -> tuple[int, int, int]:
    """A release as three numbers. InputError for anything else."""
    found = VERSION.fullmatch(version)
    if found is None:
        raise InputError(f"{version!r} is no release; write one as 4.3.1")
    return int(found[1]), int(found[2]), int(found[3])


def case(
    name: str,
    topology: Topology,
    *,
    claim: Mapping[str, Any],
    control: Mapping[str, Any],
    topics: Mapping[str, str] | None = None,
) -> Callable[[_Steps], _Steps]:
    """Registers a function as the steps of a case on this topology, whose topics have these
    settings.

    The function is called with a bench and with the arguments in `claim` or `control`. Raises
    ValueError for a name that is taken, and for text that is not as `CaseText` says.
    """

    def register(steps: _Steps) -> _Steps:
        if name in _REGISTERED:
            raise ValueError(f"two cases are called {name}")
        _REGISTERED[name] = Case(
            **_text(name),
            name=name,
            module=steps.__module__,
            topology=topology,
            topics=topics or {},
            play=partial(steps, **claim),
            play_control=partial(steps, **control),
        )
        return steps

    return register


def registered() -> Mapping[str, Case]:
    """Name -> case, of all modules that are imported by now."""
    return _REGISTERED


def _text(name: str) -> dict[str, Any]:
    read = tomllib.loads((CLAIMS / f"{name}.toml").read_text())
    known = [each.name for each in fields(CaseText)]
    if strange := read.keys() - set(known):
        raise ValueError(f"{name}.toml has the unknown keys {', '.join(sorted(strange))}")
    try:
        text = msgspec.convert(read, CaseText)
    except msgspec.ValidationError as error:
        raise ValueError(f"{name}.toml: {error}") from error
    return {key: getattr(text, key) for key in known}


_Z: Final = 1.959963984540054
"""Quantile of the normal distribution for 95 %, two-sided."""


def interval(shown: int, runs: int) -> tuple[float, float]:
    """Bounds of the true rate after `shown` of `runs`; of no runs at all nothing is known: (0,
    1)."""
    if not 0 <= shown <= runs:
        raise ValueError(f"{shown} of {runs}")
    if runs == 0:
        return 0.0, 1.0
    rate, square = shown / runs, _Z * _Z
    centre = rate + square / (2 * runs)
    spread = _Z * math.sqrt(rate * (1 - rate) / runs + square / (4 * runs * runs))
    low, high = (centre - spread) / (1 + square / runs), (centre + spread) / (1 + square / runs)
    return (0.0 if shown == 0 else max(0.0, low)), (1.0 if shown == runs else min(1.0, high))


def words(shown: int, runs: int) -> str:
    """For example: 3 of 3 (44 to 100 %)."""
    low, high = interval(shown, runs)
    return f"{shown} of {runs} ({100 * low:.0f} to {100 * high:.0f} %)"


def too_few(runs: int, needed: int) -> str:
    """The note on runs that showed nothing, where they are too few for a NOT REPRODUCED of their
    case."""
    return f"not shown in {words(0, runs)}; a NOT REPRODUCED takes {needed} runs"

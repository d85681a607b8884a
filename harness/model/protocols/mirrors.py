"""Mirrors, each on one link, and the recorder of their events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from linkflap.harness.model.events import Kind
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.topology import LinkSpec

FailoverKind = Literal["planned", "forced"]
"""Drained first, or not."""


class Recorder(Protocol):
    """Where events go."""

    def write(self, event: Kind, /) -> Kind:
        """Writes an event, with the time of now where it has none, and returns it so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStage:
    """A mirror's own report of its progress. `held`: bytes that it has fetched and that not every
    live replica of the destination has."""

    held: int
    handing_over: bool


@runtime_checkable
class ReportsStage(Protocol):
    """A mirror that can be asked what it is at."""

    def stage(self) -> MirrorStage | None:
        """None while it does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedVerbs:
    """A sequence of verbs that was asked of a mirror: how many were `asked`, how many of them
    changed it, `wrong` where an answer or the state after it is not as the mirror's model has it,
    and `unanswered` where one had no answer, which proves nothing."""

    asked: int
    changed: int
    wrong: str = ""
    unanswered: str = ""


@runtime_checkable
class Administered(Protocol):
    """A mirror that brokers of the destination are: it has no process, and admins rule it by verbs
    and settings."""

    def coordinator(self) -> int | None:
        """The destination's broker that coordinates it: the leader of the mirror's partition of the
        state topic. None while there is none, or none is known."""

    def source_addresses(self) -> Sequence[str]:
        """host:port of the source, as its settings have them."""

    def move_source(self, addresses: Sequence[str]) -> None:
        """Has its settings name these addresses of its source from now on. Raises FaultError."""

    def play_verbs(self, seed: str, steps: int) -> PlayedVerbs:
        """Plays random verbs that promote nothing, and compares each step with the model of the
        mirror's verbs."""

    def resume_all(self) -> Sequence[str]:
        """Resumes what is paused and waits until everything is mirrored; the topics. Raises
        DeadlineExceeded."""


@runtime_checkable
class ReportsGivenUpTopics(Protocol):
    """A mirror that can be asked which topics it mirrors no more, though they are at its source."""

    def given_up(self) -> Mapping[str, str]:
        """Topic -> why; none while it does not answer."""


class Mirror(Protocol):
    """What replicates over one link. One class per kind, made by `(spec, link, deployment,
    recorder)`."""

    @property
    def spec(self) -> MirrorSpec: ...
    @property
    def link(self) -> LinkSpec: ...
    def start(self) -> None:
        """Returns when its tasks run and a record went through."""

    def stop(self) -> None:
        """Graceful; nothing is appended to the destination afterwards."""

    def fail_over(self, kind: FailoverKind) -> None:
        """Like `stop`, but final: clients may write to the destination once it returns."""

    def crash(self) -> None:
        """SIGKILL of the worker."""

    def restart(self) -> None:
        """After a crash: returns when records go through again."""

    @property
    def alive(self) -> bool: ...
    def lag(self) -> int | None:
        """Records of the source that it has not read yet, or None while that is unknown (source
        down)."""

    def promotion(self) -> Mapping[tuple[str, int], int]:
        """Per (topic, partition), the first offset on the destination that is not the mirror's;
        asked after stop()."""

    def reversed(self) -> Mirror:
        """A mirror over the reverse link, not started yet, that takes over the topics which this
        one promoted (failback).

        Asked after stop(). When it starts, the reverse link's destination loses what it has behind
        the last common offset: each such cut is an event `truncation` (subject: the reverse link;
        cluster, topic, partition, offset, end = where the log ended before). Raises InputError from
        a kind of mirror that cannot.
        """

"""Mirrors: what replicates over a link. Written by `harness.mirrors`, a crash also by
`harness.recording.unexpected_exits`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from linkflap.harness.model.events.base import OfLink
from linkflap.harness.model.history import OffsetOrNone, Small, Time


class MirrorStarted(OfLink, frozen=True, kw_only=True):
    """It mirrors, `seconds` after it was started. `mirror` is its kind, `options` what people ask
    for first of its options."""

    mirror: str
    options: Mapping[str, object] | None = None
    seconds: float | None = None


class DescribedPartition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A partition in a mirror's description of itself: its state by the mirror's name, and its lag
    in records. `mirrors` and `promoted`: what that state means; `promoted` is None in runs of a
    linkflap that did not record it."""

    topic: str
    partition: Small
    state: str
    mirrors: bool
    lag: int
    promoted: bool | None = None


class MirrorDescribed(OfLink, frozen=True, kw_only=True):
    """A mirror's own report: requested at `asked` (ns), answered at the event's time."""

    asked: Time
    rows: tuple[DescribedPartition, ...]


class MirrorVerb(OfLink, frozen=True, kw_only=True):
    """A verb of a mirror's admin interface: the number of requests in `seconds`, until it was
    accepted or the deadline passed; errors are counted."""

    verb: str
    accepted: bool
    tries: int
    refused: Mapping[str, int]
    seconds: float


class VerbsPlayed(OfLink, frozen=True, kw_only=True):
    """A random sequence of verbs that a mirror was asked, drawn by `seed`: `steps` in words, with
    their answers.

    It is compared with the model of the mirror's verbs. `wrong` is the disagreement, which ends the
    sequence, and `topic` an affected topic. `unanswered` is a verb without an answer, which is no
    disagreement. `writes` are the final writes, one to each broker of the destination, in words;
    None if there was none.
    """

    seed: str
    steps: tuple[str, ...]
    wrong: str | None = None
    topic: str | None = None
    unanswered: str | None = None
    writes: tuple[str, ...] | None = None


class ComparedTopic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topic of a mirror's source compared with the destination's: its numbers of partitions there
    and here (0: no such topic), and those of its `compared` settings that differ: name -> (there,
    here), None if unset. `acls`, if both clusters have ACLs: those that are missing here, and those
    that are only here. `recorded`: differences between the mirror's own records of its state and
    describe, in words."""

    topic: str
    there: Small
    here: Small
    compared: Small
    differing: Mapping[str, tuple[str | None, str | None]] | None = None
    acls: Small | None = None
    missing: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    recorded: tuple[str, ...] = ()


class TopicsCompared(OfLink, frozen=True, kw_only=True):
    """A mirror that had copied everything was waited for to sync its topics and their settings, for
    so many `seconds`."""

    rows: tuple[ComparedTopic, ...]
    seconds: float


class SourceMoved(OfLink, frozen=True, kw_only=True):
    """The mirror's settings name other addresses of its source from now on."""

    addresses: tuple[str, ...]


class JournalPartition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A mirror's journal of one partition when the mirror stopped.

    `mirrored` is the offset after the last mirrored record, `promoted` the first that clients of
    the destination may write, `appended` (offset, what) are the records in between. `truncated` are
    (where the log had ended, to which offset it was truncated). `epochs` and `source_epochs` are
    leader epochs (epoch, first offset) of the mirrored log and of its source's, `open` the
    transactions (producer id, producer epoch, …) to abort. For a partition that was taken over,
    `home` has its former brokers, and `truncated_to` and `truncated_from` are the new and the
    former end of its log; -1 if it was not truncated.
    """

    topic: str
    partition: Small
    epochs: tuple[tuple[int, int], ...] | None = None
    source_epochs: tuple[tuple[int, int], ...] | None = None
    mirrored: OffsetOrNone
    truncated: tuple[tuple[int, int], ...] | None = None
    open: tuple[tuple[int, ...], ...] | None = None
    appended: tuple[tuple[int, str], ...] | None = None
    promoted: OffsetOrNone
    home: tuple[int, ...] | None = None
    truncated_to: int | None = msgspec.field(name="cut", default=None)
    truncated_from: int | None = msgspec.field(name="cut_from", default=None)


class JournalTopic(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A topic's ids on both sides, and which of its configs the destination's release does not
    have."""

    source: str
    destination: str
    unknown_configs: tuple[str, ...] | None = None


class VerbAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a verb was answered (see `MirrorVerb`); or the error that refused it."""

    verb: str | None = None
    accepted: bool | None = None
    tries: int | None = None
    refused: Mapping[str, int] | None = None
    seconds: float | None = None
    error: str | None = None


class MirrorStopped(OfLink, frozen=True, kw_only=True):
    """The mirror ended. `drained`: it had mirrored everything. `partitions` and `topics` are its
    journal, if it keeps one.

    `unsynced` are groups (and their states) whose offsets were not synced because they were active
    on the destination, `undrained` brokers that may hand out mirrored producer ids from the given
    one on. `paused`, `stopped`: answers to the verbs.
    """

    drained: bool
    paused: VerbAnswer | None = None
    stopped: VerbAnswer | None = None
    partitions: tuple[JournalPartition, ...] | None = None
    topics: Mapping[str, JournalTopic] | None = None
    unsynced: Mapping[str, str] | None = None
    undrained: Mapping[str, int] | None = None


class MirrorCrashed(OfLink, frozen=True, kw_only=True):
    """It ended without having been stopped. `by`: SIGKILL, itself, or what a mirror that cannot be
    killed does instead."""

    by: str


class MirrorLag(OfLink, frozen=True, kw_only=True):
    """How many records a mirror by commands was behind at its end: as its command reported, and by
    the bytes of both sides."""

    reported: int | None
    measured: int | None


class MirrorState(OfLink, frozen=True, kw_only=True):
    """The state of a connector (`task` -1) or of one of its tasks, as Kafka Connect keeps it, when
    it changes.

    NONE: it never had one; `trace` is the end of the worker's log then.
    """

    connector: str
    task: int
    state: str
    trace: str


class TopicGivenUp(OfLink, frozen=True, kw_only=True):
    """Nothing is mirrored into it any more."""

    topic: str
    reason: str

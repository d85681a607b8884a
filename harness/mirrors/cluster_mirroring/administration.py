"""Administers a running mirror: verbs that do not promote, the addresses of its source, its
coordinator, and writes that its brokers must refuse.

A random sequence of verbs on a mirror in use promotes nothing, and each verb is compared with a
model (`verbs`). Topics are paused and resumed. Verbs that their states do not allow must be refused
and change nothing. Every broker must refuse a write to a mirrored or paused topic (KIP-1279:
READ_ONLY_TOPIC until a stop). A verb without an answer proves nothing: it ends the sequence, and is
no disagreement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.cluster_mirroring.admin import (
    MIRRORING,
    DescribeRow,
    MirrorAdmin,
    VerbRefused,
)
from linkflap.harness.mirrors.cluster_mirroring.state_topic import STATES
from linkflap.harness.mirrors.cluster_mirroring.verbs import (
    NONE,
    PAUSED,
    PROMOTING_NOTHING,
    SETTLE_SECONDS,
    MirrorModel,
    MirrorOnBuild,
    Step,
    Verb,
    VerbTarget,
    play,
    sequence,
)
from linkflap.harness.mirrors.topics import write_record
from linkflap.harness.model.errors import DeadlineExceeded, FaultError
from linkflap.harness.model.events import SourceMoved, VerbsPlayed
from linkflap.harness.model.protocols import PlayedVerbs, Recorder
from linkflap.harness.model.topology import TopicPartition
from linkflap.harness.model.wait import until
from linkflap.harness.wire.requests import coordinating_partition

READ_ONLY_TOPIC: Final = 134
_ACKNOWLEDGED: Final = 0
_NO_ANSWER: Final = -1
_ANSWERS_WITHIN: Final = 5.0
_WRITTEN_WITHIN: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One record to a partition that `broker` leads, and the error code of the answer: 0 is
    acknowledged, -1 is an answer that proves nothing."""

    broker: int
    topic: str
    partition: int
    code: int

    @property
    def words(self) -> str:
        answers = {_ACKNOWLEDGED: "acknowledged", _NO_ANSWER: "not answered"}
        answer = answers.get(self.code, f"refused with {self.code}")
        return f"a write to {self.topic}-{self.partition} on broker {self.broker} was {answer}"

    @property
    def wrong(self) -> str:
        """How the answer contradicts the KIP; empty if it does not."""
        if self.code in (READ_ONLY_TOPIC, _NO_ANSWER):
            return ""
        return f"{self.words}, expected: refused with READ_ONLY_TOPIC ({READ_ONLY_TOPIC})"


Writing = Callable[[Collection[str]], Sequence[Write]]
"""Sends the writes to these topics."""


def write_to_brokers(here: AdminClient, bootstrap: str, topics: Collection[str]) -> list[Write]:
    """One write per broker that leads a partition of these topics; empty when no broker answers."""
    try:
        known = here.list_topics(timeout=_ANSWERS_WITHIN).topics
    except KafkaException:
        return []
    leaders = {
        (topic, number): partition.leader
        for topic in sorted(topics)
        if topic in known
        for number, partition in sorted(known[topic].partitions.items())
    }
    return [
        Write(broker=broker, topic=topic, partition=number, code=_answer(bootstrap, topic, number))
        for broker, (topic, number) in one_each(leaders).items()
    ]


def one_each(leaders: Mapping[TopicPartition, int]) -> dict[int, TopicPartition]:
    """Broker -> the first partition that it leads."""
    found: dict[int, TopicPartition] = {}
    for tp, leader in leaders.items():
        if leader >= 0:
            found.setdefault(leader, tp)
    return dict(sorted(found.items()))


def code_of(error: KafkaError | None) -> int:
    """The error code that an answer proves. A retriable error, or one of the client itself, proves
    nothing."""
    if error is None:
        return _ACKNOWLEDGED
    return int(error.code()) if error.code() > 0 and not error.retriable() else _NO_ANSWER


def _answer(bootstrap: str, topic: str, partition: int) -> int:
    try:
        error, _ = write_record(
            bootstrap, topic, b"nobody's", partition=partition, within=_WRITTEN_WITHIN
        )
    except DeadlineExceeded:
        return _NO_ANSWER
    return code_of(error)


NO_ANSWER: Final = frozenset(
    {
        "NO_ANSWER",
        "REQUEST_TIMED_OUT",
        "NOT_CONTROLLER",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "CLOSED",
    }
)
"""Errors that are not an answer to a verb: no broker could be reached, or none answered in time."""


@dataclass(frozen=True, slots=True)
class SomeTopics:
    """A mirror on a build; describe reports only some of its topics."""

    asked: VerbTarget
    topics: frozenset[str]

    def ask(self, verb: Verb) -> str:
        return self.asked.ask(verb)

    def describe(self) -> Sequence[DescribeRow]:
        return [row for row in self.asked.describe() if row.topic in self.topics]


def steps_of(seed: str, topics: Sequence[str], count: int) -> list[tuple[Verb, ...]]:
    """The steps of a sequence. The first pauses all topics, so that every sequence changes
    something."""
    first = Verb(name="pause", topics=tuple(sorted(topics)))
    paused = MirrorModel(exists=True, topics=dict.fromkeys(topics, "PAUSED"))
    return [
        (first,),
        *sequence(seed, sorted(topics), count - 1, begin=paused, names=PROMOTING_NOTHING),
    ]


def play_in_use(
    asked: VerbTarget,
    link: str,
    topics: Sequence[str],
    seed: str,
    count: int,
    write: Writing,
    *,
    within: float = SETTLE_SECONDS,
) -> tuple[VerbsPlayed, PlayedVerbs]:
    """Plays a sequence on topics that are all MIRRORING, then writes to them. Returns the event,
    and the result for the fault."""
    begin = MirrorModel(exists=True, topics=dict.fromkeys(topics, MIRRORING))
    seen = play(
        SomeTopics(asked, frozenset(topics)),
        steps_of(seed, topics, count),
        begin=begin,
        within=within,
    )
    answers = [answer for step in seen for _, answer in step.answers]
    unanswered = _unanswered(seen[-1])
    wrong = "" if unanswered else seen[-1].wrong
    writes: Sequence[Write] = () if wrong or unanswered else write(topics)
    about = min(topics)
    if taken := next((each for each in writes if each.wrong), None):
        wrong, about = taken.wrong, taken.topic
    event = VerbsPlayed(
        link=link,
        seed=seed,
        steps=tuple(step.words for step in seen),
        wrong=wrong or None,
        topic=about if wrong else None,
        writes=_words(writes),
        unanswered=unanswered or None,
    )
    return event, PlayedVerbs(
        asked=len(answers), changed=answers.count(NONE), wrong=wrong, unanswered=unanswered
    )


def _words(writes: Sequence[Write]) -> tuple[str, ...] | None:
    """The writes in words; None when there were none."""
    return tuple(each.words for each in writes) or None


def _unanswered(last: Step) -> str:
    """The verb that got no answer, and its error; empty if all did."""
    return next(
        (f"{verb.words}: {error}" for verb, error in last.answers if error in NO_ANSWER), ""
    )


MIRRORS_WITHIN: Final = 60.0


class Administration:
    """Administers one mirror, `name` at the destination. `admin` is the destination's Java Admin,
    `here` its librdkafka admin."""

    def __init__(
        self,
        name: str,
        link: str,
        admin: MirrorAdmin,
        here: AdminClient,
        recorder: Recorder,
        bootstrap: str,
        configs: Mapping[str, str],
        write: Writing,
    ) -> None:
        """`bootstrap` is the name of the config with the source's addresses. `configs` is the
        mirror's configs at creation: the Java Admin asks the source for its cluster id before it
        sends any create, even one that is to be refused. `write` sends the writes that must be
        refused."""
        self._name, self._link, self._recorder = name, link, recorder
        self._admin, self._here = admin, here
        self._bootstrap, self._asked = bootstrap, MirrorOnBuild(admin, name, configs)
        self._write = write

    def coordinator(self) -> int | None:
        try:
            found = (
                self._here.list_topics(STATES, timeout=_ANSWERS_WITHIN).topics[STATES].partitions
            )
        except KafkaException:
            return None
        leader = found[coordinating_partition(self._name, len(found))].leader if found else -1
        return leader if leader >= 0 else None

    def source_addresses(self) -> Sequence[str]:
        try:
            return sorted(filter(None, self._admin.setting(self._name, self._bootstrap).split(",")))
        except VerbRefused as error:
            raise FaultError(
                f"the configs of mirror {self._name} could not be read: {error}"
            ) from error

    def move_source(self, addresses: Sequence[str]) -> None:
        try:
            self._admin.change(self._name, self._bootstrap, ",".join(addresses))
        except VerbRefused as error:
            raise FaultError(
                f"the source addresses of mirror {self._name} could not be changed: {error}"
            ) from error
        self._recorder.write(SourceMoved(link=self._link, addresses=tuple(addresses)))

    def play_verbs(self, topics: Sequence[str], seed: str, steps: int) -> PlayedVerbs:
        self._until_all(topics)
        event, found = play_in_use(self._asked, self._link, topics, seed, steps, self._write)
        self._recorder.write(event)
        return found

    def resume_all(self, topics: Sequence[str]) -> Sequence[str]:
        """Resumes the paused topics. Returns all topics once they are MIRRORING. Raises
        DeadlineExceeded."""
        self._until_all(topics, resume=True)
        return sorted(topics)

    def _until_all(self, topics: Sequence[str], *, resume: bool = False) -> None:
        """Returns when every partition of these topics is MIRRORING. `resume`: resumes paused
        topics meanwhile."""
        states: dict[str, set[str]] = {}

        def mirrored() -> bool:
            states.clear()
            try:
                for row in self._admin.describe(self._name):
                    states.setdefault(row.topic, set()).add(row.state)
            except VerbRefused:
                return False
            paused = tuple(topic for topic in topics if states.get(topic) == {PAUSED})
            if resume and paused:
                self._asked.ask(Verb(name="resume", topics=paused))
            return all(states.get(topic) == {MIRRORING} for topic in topics)

        what = f"every topic of mirror {self._name} to be MIRRORING"
        until(
            mirrored,
            within=MIRRORS_WITHIN,
            every=0.2,
            what=what,
            state=lambda: str({t: sorted(s) for t, s in states.items()}),
        )

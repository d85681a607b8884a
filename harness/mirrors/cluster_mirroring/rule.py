"""Administers a running mirror: verbs that do not promote, the addresses of its source, and its
coordinator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness.mirrors.cluster_mirroring import verbs_in_a_run
from linkflap.harness.mirrors.cluster_mirroring.admin import MirrorAdmin
from linkflap.harness.mirrors.cluster_mirroring.answers import MIRRORING, VerbRefused
from linkflap.harness.mirrors.cluster_mirroring.first_start import STATES
from linkflap.harness.mirrors.cluster_mirroring.read_only import Writing
from linkflap.harness.mirrors.cluster_mirroring.verb_model import PAUSED, Verb
from linkflap.harness.mirrors.cluster_mirroring.verb_play import MirrorOnBuild
from linkflap.harness.model.errors import FaultError
from linkflap.harness.model.events import SourceMoved
from linkflap.harness.model.protocols import PlayedVerbs, Recorder
from linkflap.harness.model.wait import until

MIRRORS_WITHIN: Final = 60.0
_ANSWERS_WITHIN: Final = 5.0


def partition_of(name: str, partitions: int) -> int:
    """The partition of the state topic whose leader coordinates the mirror of this name. Uses the
    hash of Java's String."""
    hashed = 0
    # names are ASCII, so the low byte of each character suffices
    for each in name.encode("utf-16-be", "surrogatepass")[1::2]:
        hashed = (31 * hashed + each) & 0xFFFFFFFF
    signed = hashed - 0x100000000 if hashed >= 0x80000000 else hashed
    return (0 if signed == -0x80000000 else abs(signed)) % partitions


class Rule:
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
        self._name, self._link, self._admin, self._here, self._recorder = (
            name,
            link,
            admin,
            here,
            recorder,
        )
        self._bootstrap, self._asked = bootstrap, MirrorOnBuild(admin, name, configs)
        self._write = write

    def coordinator(self) -> int | None:
        try:
            found = (
                self._here.list_topics(STATES, timeout=_ANSWERS_WITHIN).topics[STATES].partitions
            )
        except KafkaException:
            return None
        leader = found[partition_of(self._name, len(found))].leader if found else -1
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
        event, found = verbs_in_a_run.played(
            self._asked, self._link, topics, seed, steps, self._write
        )
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


class AdministeredByRule(ABC):
    """The methods of `Administered` (`harness.model.protocols`), through `_rule`, for the topics
    that the mirror copies."""

    _rule: Rule

    @abstractmethod
    def _topics(self) -> Mapping[str, int]: ...

    def coordinator(self) -> int | None:
        return self._rule.coordinator()

    def source_addresses(self) -> Sequence[str]:
        return self._rule.source_addresses()

    def move_source(self, addresses: Sequence[str]) -> None:
        self._rule.move_source(addresses)

    def play_verbs(self, seed: str, steps: int) -> PlayedVerbs:
        return self._rule.play_verbs(sorted(self._topics()), seed, steps)

    def resume_all(self) -> Sequence[str]:
        return self._rule.resume_all(sorted(self._topics()))

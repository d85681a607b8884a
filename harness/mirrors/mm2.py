"""MirrorMaker 2 in dedicated mode on one link: one worker, which reads the source through the
link's proxies and writes to the destination directly.

`start` and `restart` return when Connect reports running tasks of the source connector, and a
canary record has arrived on the destination. MirrorMaker keeps the order of records but not their
offsets: markers, repeated records and omitted aborted records shift them.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Final, Literal

from confluent_kafka import (
    OFFSET_BEGINNING,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient

from linkflap.harness.machine.java import properties_file
from linkflap.harness.mirrors import mm2_config
from linkflap.harness.mirrors.base import MirrorBase, tail
from linkflap.harness.mirrors.topics import (
    Canary,
    MirroredEnds,
    copy_topics,
    data_topics,
    ends_on,
    read_to_end,
    reader,
)
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.events import MirrorState, MirrorStopped
from linkflap.harness.model.protocols import (
    Deployment,
    Mirror,
    Recorder,
    Service,
    is_running,
)
from linkflap.harness.model.scenario import MirrorSpec
from linkflap.harness.model.security import entered_by
from linkflap.harness.model.topology import (
    ANY_NAME,
    LinkSpec,
    TopicPartition,
    hyphen_free,
    topic_pattern,
)
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes.distribution.kafka import brokers_alone
from linkflap.harness.wire.librdkafka import quiet

_BATCH: Final = 5000
_TRACE: Final = 4000
"""How many characters of a stack trace are kept: its causes come after many frames."""


class MirrorProgress(ABC):
    """The state of the connectors of one link, from Connect. Not thread-safe."""

    def __init__(self, link: str) -> None:
        self._link = link
        self.positions: dict[TopicPartition, int] = {}
        """Source partition -> the first offset that is not known to be mirrored."""
        self.states: dict[str, str] = {}
        """Connector and task states as Connect wrote them, for example `task
        MirrorSourceConnector-0` -> RUNNING."""
        self.failure = ""
        """How the source connector or one of its tasks failed since the worker was started; Connect
        restarts neither."""
        self._changes: list[MirrorState] = []

    @abstractmethod
    def refresh(self) -> bool:
        """Asks for what is new. False while Connect does not say."""

    def changes(self) -> list[MirrorState]:
        """State changes since the last call, in the order in which Connect wrote them."""
        changes, self._changes = self._changes, []
        return changes

    def running_tasks(self) -> list[str]:
        """The source connector's tasks that Connect reports as running."""
        prefix = f"task {mm2_config.SOURCE_CONNECTOR}-"
        return [
            name
            for name, state in self.states.items()
            if name.startswith(prefix) and state == "RUNNING"
        ]

    def forget_states(self) -> None:
        """Forgets what Connect reported about a worker that died. Called before a restart."""
        self.refresh()
        self.states.clear()
        self.failure = ""
        self._changes.clear()

    def take_state(self, connector: str, task: int, row: Mapping[str, object]) -> None:
        """`row`: the state of a connector (`task` is -1) or of a task, as Connect writes it."""
        kind, name = ("connector", connector) if task < 0 else ("task", f"{connector}-{task}")
        state, trace = str(row["state"]), str(row.get("trace") or "")
        before, self.states[f"{kind} {name}"] = self.states.get(f"{kind} {name}"), state
        if before == state:
            return
        if state == "FAILED" and connector == mm2_config.SOURCE_CONNECTOR:
            self.failure = f"{kind} {name} failed: {_cause(trace)}"
        self._changes.append(self.state_of(connector, task, state, trace[:_TRACE]))

    def state_of(self, connector: str, task: int, state: str, trace: str) -> MirrorState:
        """The event of a state that a connector (`task` is -1) or a task is in."""
        return MirrorState(
            link=self._link, connector=connector, task=task, state=state, trace=trace
        )

    def take_offset(self, where: object, value: object) -> None:
        """A source partition, and the last offset that is known to be mirrored; None: none is."""
        if not isinstance(where, dict):
            return
        partition = (str(where["topic"]), int(where["partition"]))
        if isinstance(value, dict):
            self.positions[partition] = int(value["offset"]) + 1
        else:
            self.positions.pop(partition, None)


class ConnectProgress(MirrorProgress):
    """Connect's compacted internal topics of one link, as tables."""

    def __init__(self, link: LinkSpec, bootstrap: str) -> None:
        super().__init__(link.name)
        self._topics = (mm2_config.offsets_topic(link), mm2_config.status_topic(link))
        self._admin = AdminClient(quiet(bootstrap))
        self._reader = reader(bootstrap, "read_committed")
        self._assigned = False

    def close(self) -> None:
        self._reader.close()

    def refresh(self) -> bool:
        """Reads new records. False while Connect has not created its topics."""
        if not self._assigned and not self._assign():
            return False
        while messages := self._reader.consume(_BATCH, timeout=0):
            for message in messages:
                self._take(message)
        return True

    def _assign(self) -> bool:
        known = self._admin.list_topics(timeout=10).topics
        if not all(topic in known for topic in self._topics):
            return False
        starts = [KafkaPartition(topic, 0, OFFSET_BEGINNING) for topic in self._topics]
        what = f"Connect's internal topics of {self._link}"
        for message in read_to_end(self._reader, starts, within=20, what=what):
            self._take(message)
        self._assigned = True
        return True

    def _take(self, message: Message) -> None:
        key, value = message.key(), message.value()
        if message.error() is not None or key is None:
            return
        content = json.loads(value) if value else None
        if message.topic() == self._topics[0]:
            self._take_offset(json.loads(key), content)
        else:
            self._take_state(_text(key), content)

    def _take_offset(self, key: list[object], value: object) -> None:
        connector, where = key
        if connector == mm2_config.SOURCE_CONNECTOR:
            self.take_offset(where, value)

    def _take_state(self, key: str, value: object) -> None:
        _, _, rest = key.partition("-")
        kind, _, name = rest.partition("-")
        if key.startswith("status-") and kind in ("connector", "task"):
            row = value if isinstance(value, dict) else {"state": "REMOVED"}
            connector, _, number = name.rpartition("-") if kind == "task" else (name, "", "-1")
            self.take_state(connector, int(number), row)


def _cause(trace: str) -> str:
    """The innermost cause in a Java stack trace, without the name of its package."""
    lines = [line.strip() for line in trace.splitlines()]
    causes = [line for line in lines if line.startswith("Caused by: ")] or lines[:1]
    cause = causes[-1].removeprefix("Caused by: ") if causes else "Connect gives no reason"
    name, colon, message = cause.partition(":")
    return f"{name.rpartition('.')[2]}{colon}{message}".rstrip(".")


def _text(key: str | bytes) -> str:
    return key.decode() if isinstance(key, bytes) else key


class Gap:
    """Counts the records of the source between two offsets that a consumer with the mirror's
    isolation level gets.

    An offset difference says little, because control records and aborted transactions take offsets
    but are never mirrored. Counts are cached, so that an unchanged gap is read only once. Not
    thread-safe.
    """

    def __init__(self, bootstrap: str, isolation: str) -> None:
        self._reader = reader(bootstrap, isolation)
        self._counts: dict[TopicPartition, tuple[int, int, int]] = {}

    def close(self) -> None:
        self._reader.close()

    def count(
        self, partition: TopicPartition, start: int, end: int, *, within: float
    ) -> int | None:
        """Records in [start, end), or None when they could not be read in `within` seconds."""
        kept = self._counts.get(partition)
        if kept and kept[:2] == (start, end):
            return kept[2]
        try:
            what = f"the tail of {partition[0]}-{partition[1]}"
            starts = [KafkaPartition(*partition, start)]
            tail_of = read_to_end(self._reader, starts, within=within, what=what)
        except DeadlineExceeded:
            return None
        finally:
            self._reader.unassign()
        counted = sum((message.offset() or 0) < end for message in tail_of)
        self._counts[partition] = (start, end, counted)
        return counted


START_SECONDS: Final = 90.0
SETTLE_SECONDS: Final = 60.0
_ASK_SECONDS: Final = 2.0
_FILE: Final = "mm2.properties"


class MirrorMaker(MirrorBase):
    """Raises InputError for an unknown option or value. Its methods may be called from several
    threads."""

    def __init__(
        self, spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder
    ) -> None:
        super().__init__(spec, link, deployment, recorder)
        self._options = mm2_config.options(spec.options)
        self._settings = mm2_config.settings(spec.options)
        self._ends = MirroredEnds(
            admin=self._here,
            destination=link.destination,
            homes=self._homes,
            answers_within=_ASK_SECONDS * 5,
        )
        self._service = self._prepare(deployment)
        self._progress = self._watched()
        self._gap = Gap(self._source.bootstrap, self._options.isolation)
        self._seen: dict[TopicPartition, tuple[int, int]] = {}
        self._asking = threading.Lock()

    def _prepare(self, deployment: Deployment) -> Service:
        if brokers_alone(self._destination.kafka):
            raise InputError(
                f"the jars of Kafka {self._destination.kafka} are only those of a broker, without "
                f"MirrorMaker; give cluster {self.link.destination} another release, or name a "
                "directory with all jars"
            )
        values = mm2_config.properties(
            self._options,
            self.link,
            source=deployment.links[self.link.name].bootstrap,
            destination=entered_by(self._destination.inner_bootstrap, "mirror"),
            topics=topic_pattern(self._homes),
            replicas=min(3, len(self._destination.brokers)),
            port=deployment.free_port() if self._options.delivery == "exactly-once" else 0,
            own=self._settings,
        )
        name = f"mm2-{hyphen_free(self.link.source)}-{hyphen_free(self.link.destination)}"
        return deployment.service(
            name,
            main=mm2_config.MAIN,
            kafka=self._destination.kafka,
            files={_FILE: properties_file(values)},
            arguments=[_FILE, "--clusters", self.link.destination],
        )

    def _watched(self) -> MirrorProgress:
        return ConnectProgress(self.link, self._destination.bootstrap)

    def _see(self) -> str:
        """Where more is to be found, as the end of a sentence."""
        return f"its log is {self._service.log}"

    def _words(self) -> str:
        """The worker's last log lines, as the end of a sentence."""
        return f"its log ends:\n{tail(self._service.log)}"

    @property
    def alive(self) -> bool:
        return self._service.alive

    def start(self) -> None:
        """Creates the topics, starts the worker, and waits until a canary record has arrived.

        Raises SetupError when the worker ends, DeadlineExceeded when no record arrives; both with
        the last lines of its log.
        """
        copy_topics(self._source, self._destination, self._homes)
        self._run()

    def restart(self) -> None:
        self._run()

    def _run(self) -> None:
        began = time.monotonic()
        with self._asking:
            self._progress.forget_states()
        # Connect starts at most one task per partition, and the canary topic has one partition
        # more.
        tasks = min(self._options.tasks, 1 + sum(data_topics(self._there, self._homes).values()))
        self._service.start()
        canary = Canary(self._source.bootstrap, self._destination.bootstrap, self._canary)
        try:
            what = f"{tasks} tasks and a record to cross {self.link.name}"
            through = partial(self._through, canary, tasks)
            until(through, within=START_SECONDS, what=what, state=self._state)
        except DeadlineExceeded as error:
            raise DeadlineExceeded(
                f"mirror mm2 on {self.link.name} did not start: {error}; {self._words()}"
            ) from error
        finally:
            canary.close()
        self._record_start({**asdict(self._options), **self._settings}, began)

    def _through(self, canary: Canary, tasks: int) -> bool:
        if not self._service.alive:
            raise SetupError(
                f"mirror mm2 on {self.link.name} ended while it started; {self._words()}"
            )
        with self._asking:
            running = len(self._progress.running_tasks()) if self._refresh() else 0
            failure = self._progress.failure
        if failure:
            raise SetupError(
                f"mirror mm2 on {self.link.name} did not start, as its {failure}; {self._see()}"
            )
        return canary.arrived() and running >= tasks

    def _refresh(self) -> bool:
        """Reads what Connect wrote, and records state changes. Restarts nothing: a failed connector
        or task stays failed, as in production until somebody intervenes."""
        known = self._progress.refresh()
        for change in self._progress.changes():
            self._recorder.write(change)
        return known

    def _state(self) -> str:
        return (
            f"worker {'alive' if self._service.alive else 'dead'}, Connect says "
            f"{self._progress.states or 'nothing'}"
        )

    def crash(self) -> None:
        self._service.kill()
        self._record_crash()

    def stop(self) -> None:
        """Ends the worker, and its open transactions on the destination. Safe to call twice.

        A worker that ends gracefully commits its last transaction. One that was killed, or did not
        end in time, leaves one open. Until the transaction timeout, the coordinator could append an
        abort marker at any moment. So a producer here initializes the same transactional ids, which
        aborts the open transactions now. Raises DeadlineExceeded when the destination has brokers
        but does not settle.
        """
        drained = self._service.alive and self.lag() == 0
        self._look_at_states()
        try:
            self._service.stop()
        except DeadlineExceeded:
            self._service.kill()
        if is_running(self._destination):
            self._settle()
        self._recorder.write(MirrorStopped(link=self.link.name, drained=drained))

    def _look_at_states(self) -> None:
        """Records state changes, and connectors that never had a state. Has to run before the
        worker is stopped, which ends all states. Does nothing for a dead worker."""
        if not self._service.alive or not is_running(self._destination):
            return
        with self._asking, contextlib.suppress(KafkaException, DeadlineExceeded):
            self._refresh()
            for connector in mm2_config.connectors(self._options):
                if f"connector {connector}" not in self._progress.states:
                    self._recorder.write(
                        self._progress.state_of(connector, -1, "NONE", self._words())
                    )

    def _settle(self) -> None:
        """Returns when nothing from the worker can be appended to the destination any more."""
        if self._options.delivery == "exactly-once":
            opened = self._ends.open
            if opened() != []:
                for name in mm2_config.transactional_ids(self.link, self._options.tasks):
                    self._take_over(name)
            what = f"open transactions of {self.link.name} to end"
            until(lambda: opened() == [], within=SETTLE_SECONDS, what=what, state=opened)
        self._ends.await_unchanged(SETTLE_SECONDS)

    def _take_over(self, transactional_id: str) -> None:
        taker = Producer(
            quiet(self._destination.bootstrap) | {"transactional.id": transactional_id}
        )
        try:
            taker.init_transactions(SETTLE_SECONDS)
        except KafkaException as error:
            raise DeadlineExceeded(
                f"transactional id {transactional_id} of {self.link.name} could not be taken over "
                f"({error.args[0].str()}); is {self.link.destination} healthy?"
            ) from error

    def promotion(self) -> Mapping[TopicPartition, int]:
        return self._ends.known(SETTLE_SECONDS)

    def reversed(self) -> Mirror:
        raise InputError(
            "MirrorMaker 2 does not keep offsets, so it cannot take topics over for a failback; "
            "use --mirror shadow"
        )

    def lag(self) -> int | None:
        """Records of the source that are not known to be on the destination; None while the source
        does not answer.

        An upper bound, by offsets, while source or mirror move. Exact, by reading the tail, once
        both stand still.
        """
        if not is_running(self._source):
            return None
        which: Literal["stable", "high"] = (
            "stable" if self._options.isolation == "read_committed" else "high"
        )
        with self._asking:
            # asked first: what is made on both in between is no topic of the destination alone
            any_name = ANY_NAME in self._homes
            here = ends_on(self._here, self._homes, which, within=_ASK_SECONDS) if any_name else {}
            ends = ends_on(self._there, self._homes, which, within=_ASK_SECONDS)
            if ends is None or here is None or not self._refresh():
                return None
            lacking = {topic for topic, _ in here} - {topic for topic, _ in ends}
            self._ends = replace(self._ends, made_there=frozenset(lacking))
            return sum(self._behind(partition, end) for partition, end in ends.items())

    def _behind(self, partition: TopicPartition, end: int) -> int:
        position = self._progress.positions.get(partition, 0)
        if position >= end:
            return 0
        before, self._seen[partition] = self._seen.get(partition), (position, end)
        if before != (position, end):
            return end - position
        counted = self._gap.count(partition, position, end, within=_ASK_SECONDS)
        return end - position if counted is None else counted

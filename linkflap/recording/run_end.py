"""The end of a run: waits for clients, drains records in flight, and writes the last events, the
status and the ends of processes, however the run was interrupted.

Waits, once all faults have ended, until every client that has work has made progress, and
records those that do not within their `progress_within`.

A consumer with fixed partitions or a group has work where its position is below the end that it can
read (the sampled last stable offset), and makes progress when that position moves. A producer
always has work until it is stopped, and makes progress by acknowledgements; a program without a
group by what is written to its topics. Clients of a dead cluster promise nothing.

This decides only how long a run waits. The verdict is the check `progress`'s, from the history.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.harness.capture.samplers import WatermarkSampler
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import (
    DeadlineExceeded,
    EnvironmentFailure,
    InputError,
    LinkflapError,
)
from linkflap.harness.model.events import ClientStalled, Interrupted, NotEnded, WaitedFor
from linkflap.harness.model.history import Watermark
from linkflap.harness.model.interrupts import held_off
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.model.scenario import Scenario, full_names, group_of, transactional_id_of
from linkflap.harness.model.security import beside
from linkflap.harness.model.threads import Background
from linkflap.harness.model.topology import (
    TopicPartition,
    Topology,
    is_among,
    is_data_topic,
    topic_name,
)
from linkflap.harness.model.wait import now, until
from linkflap.harness.rundir import Run, RunWriter, Status
from linkflap.harness.rundir.files import is_full, unwritable
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import Connection
from linkflap.harness.wire.librdkafka import answered_bounds, quiet
from linkflap.harness.wire.messages import Error
from linkflap.harness.workloads import relay
from linkflap.harness.workloads.command import Command
from linkflap.harness.workloads.crew import Crew, Producers, Readers, ShareGroup
from linkflap.recording.world import RunWorld
from linkflap.report.progress import Progress


def remove_data(deployment: Deployment) -> None:
    """Removes what brokers and services left on disk: what is judged was captured."""
    for service in deployment.cluster_services.values():
        shutil.rmtree(service.data, ignore_errors=True)
    for cluster in deployment.clusters.values():
        for broker in cluster.brokers.values():
            shutil.rmtree(broker.log_dir, ignore_errors=True)


def broken_off(
    world: RunWorld,
    progress: Progress,
    samplers: Sequence[Background | WatermarkSampler],
    kind: type[BaseException] | None,
    *_: object,
) -> None:
    """The first step of the end of a run: asks clients, faults and samplers to stop. When a run
    breaks off, ends the brokers that linkflap started first.

    Clients and faults that wait for brokers end soon after the brokers. A sampler that asks a dead
    broker waits for its timeout, so samplers are asked to stop first.
    """
    world.ending.set()
    if kind is not None:
        progress.phase("stopping")
        for workload in world.clients.workloads:
            workload.ask_to_stop()
        for sampler in samplers:
            sampler.ask_to_stop()
        if not world.deployment.topology.attached:  # attached ones still answer: clients can leave
            ended(world.recorder, "deployment", world.deployment.close)


def ended(writer: RunWriter, what: str, end: Callable[[], None]) -> None:
    """Ends something while a run breaks off. A failure is recorded, and hides neither the first
    reason nor later ones."""
    try:
        with held_off():
            end()
    except LinkflapError as error:
        writer.write(NotEnded(what=what, reason=str(error)))


@contextmanager
def written(folder: Path, run: Run) -> Iterator[tuple[RunWriter, list[str]]]:
    """Yields the writer of a new run directory, and at the end writes how the run ended; unexpected
    exits make it failed."""
    try:
        writer = RunWriter(folder, run)
    except OSError as error:
        if is_full(error):
            raise unwritable(folder, error) from error
        raise InputError(
            f"the run directory {folder} cannot be made ({error.strerror}); name another place with"
            " --out"
        ) from error
    status: Status = "failed"
    why = ""
    exits: list[str] = []
    useless = False
    try:
        yield writer, exits
        status, why = ("failed", "; ".join(exits)) if exits else ("finished", "")
    except KeyboardInterrupt:
        status, why = "interrupted", "interrupted by the user"
        writer.write(Interrupted(by="signal"))
        raise
    except LinkflapError as failure:
        why = str(failure)
        useless = isinstance(failure, InputError) or not any(writer.logs.rglob("*.log"))
        raise
    except BaseException as defect:
        why = repr(defect)
        raise
    finally:
        # a library may turn a signal into any other error
        if interrupts.asked() and status != "finished":
            status, why, useless = "interrupted", "interrupted by the user", False
        with held_off():
            try:
                writer.close(status, error=why)
            except EnvironmentFailure:
                if status != "interrupted":
                    raise
            finally:
                # nothing ran: there is nothing to read, and the same command can be given again
                if useless:
                    shutil.rmtree(folder)


@contextmanager
def with_room(writer: RunWriter) -> Iterator[None]:
    """Whatever fails on a full disk, the full disk is reported as the reason."""
    try:
        yield
    except LinkflapError:
        writer.check()
        raise
    except OSError as error:
        writer.check()
        if is_full(error):
            raise writer.breakage.because(error) from error
        raise


SETTLE = 60.0
"""Seconds that readers may take to reach the end once producers have stopped, and mirrors since
they last came closer to it."""
ORPHANED = 5.0
"""Seconds that open transactions may take to end on a cluster that is still mirrored to from a dead
one, or by a dead mirror, also over others."""


def drain(
    world: RunWorld,
    topics: Mapping[str, int],
    watch: Callable[[], bool],
    *,
    died: Collection[str],
) -> None:
    """Waits for mirrors that can catch up, then for readers. Polls `watch`, which returns False.
    `died` are the links whose mirrors died by themselves.

    A deadline that passes here is not an error: the verdict reports what was not read or mirrored.
    """
    lags: list[int | None] = []

    def caught_up() -> bool:
        nonlocal lags
        lags = [mirror.lag() for mirror in world.able_mirrors]
        return watch() or all(lag == 0 for lag in lags)

    with contextlib.suppress(DeadlineExceeded):
        until(
            caught_up,
            within=SETTLE,
            what="mirrors to catch up",
            every=0.1,
            remaining=lambda: sum(lag or 0 for lag in lags) if None not in lags else None,
        )
    topology = world.deployment.topology
    with contextlib.suppress(DeadlineExceeded):
        world.clients.drain(
            {
                name: stable_ends(
                    world.deployment.clusters[name],
                    {t: n for t, n in topics.items() if arrives(topology, t, name)},
                    within=ORPHANED if orphaned(world, name, died) else SETTLE,
                )
                for name in world.running_clusters
            },
            within=SETTLE,
        )


def arrives(topology: Topology, topic: str, cluster: str) -> bool:
    """Whether a topic is on a cluster: it is at home there, or a link carries it there."""
    into = [link for link in topology.links if link.destination == cluster]
    if topology.any_names:  # topics made at the start, on the first cluster
        first = topology.clusters[0].name
        return any(first in homes for homes in [(cluster,), *map(topology.homes_over, into)])
    return any(
        is_data_topic(topic, homes) for homes in [(cluster,), *map(topology.homes_over, into)]
    )


def orphaned(world: RunWorld, cluster: str, died: Collection[str]) -> bool:
    """Whether a mirror into this cluster died or has lost its source, or one into that source did:
    then nothing ends the transactions that were open."""
    dead = [world.mirrors[link] for link in died if not world.mirrors[link].alive]
    able, upstream, into = world.able_mirrors, {cluster}, [*world.running_mirrors, *dead]
    for _ in into:  # one cluster further upstream in each round
        behind = [mirror for mirror in into if mirror.link.destination in upstream]
        if any(mirror not in able for mirror in behind):
            return True
        upstream |= {mirror.link.source for mirror in behind}
    return False


def stop_mirrors(world: RunWorld) -> None:
    """Stops every mirror; those whose source or destination is dead are killed, after all others.

    A graceful stop would append markers for transactions that the dead source left open, as in a
    failover that the schedule does not have. A mirror may lead the partitions of its destination
    (`harness.mirrors.shadow`). Once it is dead, mirrors further downstream cannot report their lag,
    so killing comes last."""
    running, able = world.running_mirrors, world.able_mirrors
    for mirror in running:
        if mirror in able:
            mirror.stop()
    for mirror in running:
        if mirror not in able:
            mirror.crash()


def stable_ends(
    cluster: Cluster, topics: Mapping[str, int], *, within: float = SETTLE
) -> dict[tuple[str, int], int]:
    """The high watermarks of a cluster's partitions, once no transaction is open below them.

    When that does not come true in time: the last stable offsets, of the partitions whose leaders
    answer.
    """
    admin = AdminClient(quiet(cluster.bootstrap))
    partitions = [
        (topic, partition) for topic, count in topics.items() for partition in range(count)
    ]

    def settled() -> dict[tuple[str, int], int] | None:
        stable = answered_bounds(admin, partitions, "stable", within=5.0)
        high = answered_bounds(admin, partitions, "high", within=5.0)
        return high if stable == high and len(high) == len(partitions) else None

    if not partitions:
        return {}
    try:
        return until(
            settled, within=within, every=0.1, what=f"open transactions on {cluster.name} to end"
        )
    except DeadlineExceeded:
        return answered_bounds(admin, partitions, "stable", within=5.0)


SAMPLED_WITHIN: Final = 1.5
"""Seconds after the last fault from which on every sample is newer than the fault's end."""
ASK: Final = 5.0
LONGEST_LINE: Final = 200


@dataclass(slots=True, kw_only=True)
class _Client:
    """A client, or the group of several. `done` counts what it has done; `positions` are where a
    consumer stands, in the partitions whose ends are in `ends`.

    `first` is what both were when the wait began.
    """

    name: str
    within: float
    cluster: Callable[[], str]
    done: Callable[[], int] = lambda: 0
    positions: Callable[[], Mapping[TopicPartition, int]] | None = None
    ends: Callable[[], Mapping[TopicPartition, Watermark]] = dict
    group: str = ""
    transactional_id: str = ""
    last_words: Callable[[], str] = str
    first: tuple[int, Mapping[TopicPartition, int]] = (0, {})
    first_ends: Mapping[TopicPartition, Watermark] = field(default_factory=dict)
    goes_on: bool = False

    def begin(self) -> None:
        self.first = self.done(), self.positions() if self.positions else {}
        self.first_ends = self.ends()

    def look(self) -> bool:
        """Whether the client has made progress, or had nothing to do."""
        self.goes_on = self.goes_on or (
            not self.waits_for() if self.positions else self.done() != self.first[0]
        )
        return self.goes_on

    def works(self) -> bool:
        """Whether the client moved in some partition but has not read its first records yet: such a
        client is slow, and reads one partition after the other."""
        at, (_, before) = self.positions() if self.positions else {}, self.first
        return any(
            before.get(tp, -1) != at.get(tp, -1) < end.last_stable
            for tp, end in self.first_ends.items()
        )

    def waits_for(self) -> Sequence[WaitedFor]:
        """The partitions in which it has something to read and stands still."""
        if self.positions is None:
            return ()
        at, (_, before) = self.positions(), self.first
        return [
            WaitedFor(
                topic=tp[0],
                partition=tp[1],
                position=at.get(tp, -1),
                end=end.last_stable,
                leader=end.leader,
            )
            for tp, end in sorted(self.ends().items())
            if at.get(tp, -1) == before.get(tp, -1)
            and max(at.get(tp, -1), end.log_start) < end.last_stable
        ]


def await_progress(
    world: RunWorld, scenario: Scenario, watch: Callable[[], bool], *, since: int | None
) -> None:
    """Returns when every client with work has made progress, or its time is over. Records a
    `ClientStalled` for each that did not. `watch` is called at every look; False. `since`: the end
    of the last fault (nanoseconds); None: there was none."""
    clients = [each for each in _clients(world, scenario) if each.within > 0]
    if not clients:
        return
    began = now()
    settled = max(began, (since or 0) + int(SAMPLED_WITHIN * 1e9))
    begun = False

    def over() -> bool:
        nonlocal begun
        if watch() or now() < settled:
            return False
        if not begun:
            world.clients.progress()
            for client in clients:
                client.begin()
            begun = True
            return False
        world.clients.progress()
        up = world.running_clusters
        return all(
            client.cluster() not in up
            or client.look()
            or now() >= settled + int(client.within * 1e9)
            for client in clients
        )

    longest = max(client.within for client in clients)
    with contextlib.suppress(DeadlineExceeded):
        until(
            over,
            within=longest + 10 * SAMPLED_WITHIN,
            what="every client to make progress",
            every=0.2,
        )
    up = world.running_clusters
    for client in clients:
        if begun and client.cluster() in up and not (client.goes_on or client.works()):
            world.recorder.write(_stalled(world, client, (now() - began) / 1e9))


def _clients(world: RunWorld, scenario: Scenario) -> Iterator[_Client]:
    seen: set[tuple[str, str]] = set()
    for crew in world.clients.workloads:
        spec = crew.spec
        if isinstance(crew, Command) and crew.ended:
            continue
        own = spec.progress_within
        within = scenario.progress_within if own is None else own
        for client in _of_crew(world, crew, within):
            # members of one group, also of several workloads, are one client
            if (spec.kind, client.name) not in seen:
                seen.add((spec.kind, client.name))
                yield client


def _of_crew(world: RunWorld, crew: Crew, within: float) -> Iterator[_Client]:
    spec, group = crew.spec, group_of(crew.spec)
    if isinstance(crew, Command):
        yield from _of_command(world, crew, within)
    elif isinstance(crew, ShareGroup):
        yield _Client(
            name=f"group {group}",
            within=within,
            cluster=lambda: _at(crew),
            done=lambda: sum(member.counts.read for member in crew.members),
            positions=lambda: _finished(crew),
            ends=lambda: _ends(world, _at(crew), lambda tp: tp[0] in crew.topics),
            group=group,
        )
    elif isinstance(crew, Readers) and not group:
        for number in range(len(crew.members)):
            yield _reader(world, crew, number, within)
    elif group:
        name = f"group {group}" if isinstance(crew, Readers) else crew.members[0].name
        grouped = _Client(name=name, within=within, cluster=lambda: _at(crew), group=group)
        outputs = topic_name(spec.home, relay.OUTPUT)
        _reads(world, grouped, lambda tp: tp[0] in crew.topics and tp[0] != outputs)
        yield grouped
    elif isinstance(crew, Producers):
        for number in range(len(crew.members)):
            yield _producer(crew, number, within)


def _of_command(world: RunWorld, crew: Command, within: float) -> Iterator[_Client]:
    """A program of the user's, if it has a group or writes; otherwise nothing shows its
    progress."""
    spec, group = crew.spec, group_of(crew.spec)
    program = _Client(
        name=crew.name,
        within=within,
        cluster=lambda: crew.cluster,
        done=crew.written,
        group=group,
        last_words=crew.last_words,
    )
    if group:
        topics = full_names(spec, spec.reads)
        _reads(world, program, lambda tp: is_among(tp[0], topics))
    if group or spec.writes:
        yield program


def _reader(world: RunWorld, crew: Crew, number: int, within: float) -> _Client:
    return _Client(
        name=crew.members[number].name,
        within=within,
        cluster=lambda: crew.members[number].cluster,
        positions=lambda: crew.members[number].positions,
        ends=lambda: _ends(world, crew.members[number].cluster, lambda tp: tp[0] in crew.topics),
    )


def _producer(crew: Crew, number: int, within: float) -> _Client:
    name = crew.members[number].name
    return _Client(
        name=name,
        within=within,
        cluster=lambda: crew.members[number].cluster,
        done=lambda: sum(crew.members[number].counts.acknowledged.values()),
        transactional_id="" if crew.spec.kind == "idempotent" else transactional_id_of(name),
    )


def _reads(world: RunWorld, client: _Client, which: Callable[[TopicPartition], bool]) -> None:
    """Takes the sampled offsets of a group as the positions of its client."""
    client.positions = lambda: {
        tp: at
        for tp, at in world.group_offsets(client.cluster(), client.group).items()
        if which(tp)
    }
    client.ends = lambda: _ends(world, client.cluster(), which)


def _at(crew: Crew) -> str:
    return crew.members[0].cluster


def _finished(crew: Crew) -> Mapping[TopicPartition, int]:
    """The start offsets of a share group, from its members' reports."""
    found: dict[TopicPartition, int] = {}
    for member in crew.members:
        for tp, at in member.positions.items():
            found[tp] = max(at, found.get(tp, -1))
    return found


def _ends(
    world: RunWorld, cluster: str, which: Callable[[TopicPartition], bool]
) -> Mapping[TopicPartition, Watermark]:
    latest = world.sampler.clusters[cluster].latest
    return {tp: end for tp, end in latest.items() if which(tp)}


def _stalled(world: RunWorld, client: _Client, seconds: float) -> ClientStalled:
    cluster = client.cluster()
    words = client.last_words().splitlines()
    return ClientStalled(
        client=client.name,
        cluster=cluster,
        seconds=round(seconds, 3),
        partitions=tuple(client.waits_for()),
        coordinator=_said(world.deployment.clusters[cluster].bootstrap, client),
        last_words=tuple(word[:LONGEST_LINE] for word in words[-3:]),
    )


def _said(bootstrap: str, client: _Client) -> str:
    """The coordinator's answer about a client's group or transactional id, in words."""
    if client.group:
        return _of_group(bootstrap, client.group)
    if client.transactional_id:
        return asyncio.run(_of_transactions(bootstrap, client.transactional_id))
    return ""


def _of_group(bootstrap: str, group: str) -> str:
    admin = AdminClient(quiet(bootstrap))
    try:
        answer = admin.describe_consumer_groups([group], request_timeout=ASK)[group]
        found = answer.result(timeout=2 * ASK)
    except (KafkaException, TimeoutError) as error:
        return f"no answer about group {group}: {error}"
    members = ", ".join(member.client_id for member in found.members) or "none"
    return (
        f"group {group} is {found.state.name}, members: {members}; its coordinator is broker "
        f"{found.coordinator.id}"
    )


async def _of_transactions(bootstrap: str, name: str) -> str:
    """Asks every broker (KIP-664): the coordinator of the id is the one that knows it."""
    m = messages.request("describe_transactions", 0)
    body = m.DescribeTransactionsRequest(transactional_ids=(name,))
    said = f"no coordinator of transactional id {name} answered"
    for address in bootstrap.split(","):
        broker = Connection(beside(bootstrap, address))
        try:
            (found,) = (
                await broker.call("describe_transactions", 0, body, within=ASK)
            ).transaction_states
        except Unanswered:
            continue
        finally:
            broker.close()
        if found.error_code == Error.none:
            partitions = sum(len(topic.partitions) for topic in found.topics)
            return (
                f"transactional id {name} is {found.transaction_state} with producer id "
                f"{found.producer_id}, epoch {found.producer_epoch} and {partitions} partitions; "
                f"its coordinator is at {address}"
            )
        if found.error_code != Error.not_coordinator:
            said = f"transactional id {name}: {found.error_code.name}"
    return said

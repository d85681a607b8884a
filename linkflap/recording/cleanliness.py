"""Whether clusters are as they were before a run, so that another run or test may use them. Each
function lists what makes them unclean, in words; an empty list proves that nothing does."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from linkflap.chaos.faults import ON_KEPT
from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.events import BrokerDied, FaultEnd, FaultStart, of_kind
from linkflap.harness.model.protocols import Broker, Cluster, Deployment, Link
from linkflap.harness.model.scenario import Scenario
from linkflap.harness.model.security import beside
from linkflap.harness.model.wait import patient, until
from linkflap.harness.rundir import RunReader, process_logs
from linkflap.harness.wire import messages
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.connection import Connection
from linkflap.harness.wire.librdkafka import quiet
from linkflap.harness.wire.messages import Error

IN_SYNC_WITHIN: Final = 30.0
MEMORY: Final = 600 << 20
"""Resident bytes that each broker, and the process that records, may take. Of a broker: heap, other
memory of the JVM, and mapped pages of its logs."""
_ASK_SECONDS: Final = 20.0
_SET_LATER: Final = frozenset({2, 3, 6})
"""Sources of a broker's setting that is not from its start: set on the broker, on all, or on its
loggers (DescribeConfigsResponse.ConfigSource)."""
_AFTER_FAULT: Final = 5_000_000_000
"""Nanoseconds after its end in which a fault explains errors in logs: sessions end in 3 s."""
_STATE_CHANGES: Final = "(logger)"
"""The end of a line of Kafka's state change logger. It reports as an error that a partition is
new to a broker whose leader, a mirror, is not."""
_LOG_OF_BROKERS: Final = "server.log"
_ERROR: Final = re.compile(rb"^\[[^\]]*\] (ERROR|FATAL) .*", re.MULTILINE)
_LONGEST: Final = 200


def brokers_of(deployment: Deployment) -> Iterator[Broker]:
    for cluster in deployment.clusters.values():
        yield from cluster.brokers.values()


def changed_for_good(scenario: Scenario) -> Sequence[str]:
    """The faults of a scenario whose changes no heal takes back."""
    return [
        f"{fault.fault} changes {fault.target} for good"
        for fault in scenario.schedule
        if fault.fault not in ON_KEPT
    ]


def stopped(deployment: Deployment) -> Sequence[str]:
    """The brokers and services that do not run, and programs behind links that have died."""
    down = [
        f"broker {b.cluster}/{b.id} is {b.state}"
        for b in brokers_of(deployment)
        if b.state != "running"
    ]
    services = deployment.cluster_services.values()
    ended = [f"service {s.name} of {s.cluster} has ended" for s in services if not s.alive]
    return [*down, *ended, *filter(None, [deployment.broken()])]


def broken(deployment: Deployment) -> Sequence[str]:
    """Everything that does not work: brokers, links, replicas. Waits a while for replicas."""
    return [
        *stopped(deployment),
        *(text for link in deployment.links.values() for text in _broken(link)),
        *(text for each in deployment.cluster_services.values() for text in _broken(each.link)),
        *(text for cluster in deployment.clusters.values() for text in _behind(cluster)),
    ]


def _broken(link: Link) -> Iterator[str]:
    if toxics := link.toxics():
        yield f"link {link.name} has the toxics {', '.join(toxics)}"
    if not link.enabled or link.holders():
        yield f"link {link.name} is cut"


def _behind(cluster: Cluster) -> Iterator[str]:
    """Brokers that are missing in a cluster's metadata or strange there, and partitions whose
    replicas are not in sync. Waits a while for both."""
    admin = AdminClient(quiet(cluster.bootstrap))
    found = [f"cluster {cluster.name} does not answer"]

    def in_sync() -> bool:
        nonlocal found
        try:
            known = admin.list_topics(timeout=5.0)
        except KafkaException:
            return False
        ours, theirs = cluster.brokers.keys(), known.brokers.keys()
        found = [
            *(f"cluster {cluster.name} lacks broker {each}" for each in sorted(ours - theirs)),
            *(f"broker {each} is in cluster {cluster.name}" for each in sorted(theirs - ours)),
        ]
        for name, topic in known.topics.items():
            short = sorted(
                p.id
                for p in topic.partitions.values()
                if {*p.isrs} != {*p.replicas} or p.leader < 0
            )
            found += [
                f"{name}-{partition} of cluster {cluster.name} is not in sync"
                for partition in short
            ]
        return not found

    try:
        until(
            in_sync,
            within=patient(IN_SYNC_WITHIN),
            every=0.1,
            what=f"the replicas of {cluster.name} to be in sync",
        )
    except DeadlineExceeded:
        yield from found


def settings_of(cluster: Cluster) -> Mapping[str, str]:
    """The settings of a cluster's brokers beside their files: broker and name -> value. Raises
    KafkaException or TimeoutError."""
    admin = AdminClient(quiet(cluster.bootstrap))
    # librdkafka refuses a call that asks about several brokers
    answers = [
        admin.describe_configs(
            [ConfigResource(ConfigResource.Type.BROKER, str(number))], request_timeout=_ASK_SECONDS
        )
        for number in cluster.brokers
    ]
    return {
        f"{resource.name}: {entry.name}": str(entry.value)
        for answer in answers
        for resource, settings in answer.items()
        for entry in settings.result(2 * _ASK_SECONDS).values()
        if getattr(entry.source, "value", entry.source) in _SET_LATER
    }


def left(cluster: Cluster, settings: Mapping[str, str]) -> Sequence[str]:
    """Topics of any kind, groups, transactional ids, and settings other than those at the start."""
    admin = AdminClient(quiet(cluster.bootstrap))
    try:
        topics = sorted(admin.list_topics(timeout=_ASK_SECONDS).topics)
        names = sorted(groups_of(admin))
        ids = asyncio.run(_transactional_ids(cluster))
        now = settings_of(cluster)
    except (KafkaException, TimeoutError, Unanswered) as error:
        return [f"cluster {cluster.name} does not say what is left ({error})"]
    return [
        *(f"topic {name} is left on cluster {cluster.name}" for name in topics),
        *(f"group {name} is left on cluster {cluster.name}" for name in names),
        *(f"transactional id {name} is left on cluster {cluster.name}" for name in ids),
        *(
            f"setting {name} of cluster {cluster.name} is {now.get(name, 'not set')}"
            for name in sorted({*settings, *now})
            if settings.get(name) != now.get(name)
        ),
    ]


def groups_of(admin: AdminClient) -> list[str]:
    """The groups of a cluster. Raises KafkaException, also if any broker does not list its own."""
    found = admin.list_consumer_groups(request_timeout=_ASK_SECONDS).result(2 * _ASK_SECONDS)
    if found.errors:
        raise KafkaException(found.errors[0])
    return [group.group_id for group in found.valid]


async def _transactional_ids(cluster: Cluster) -> Sequence[str]:
    """The transactional ids that coordinators know, in whatever state (KIP-664). Raises Unanswered,
    also if one of them does not list its own."""
    body = messages.request("list_transactions", 0).ListTransactionsRequest(
        state_filters=(), producer_id_filters=()
    )
    found: set[str] = set()
    for address in cluster.bootstrap.split(","):
        broker = Connection(beside(cluster.bootstrap, address))
        try:
            answer = await broker.call("list_transactions", 0, body, within=_ASK_SECONDS)
        finally:
            broker.close()
        if answer.error_code != Error.none:
            raise Unanswered(f"{address} lists no transactions: {answer.error_code.name}")
        found |= {each.transactional_id for each in answer.transaction_states}
    return sorted(found)


def too_large(deployment: Deployment) -> Sequence[str]:
    """Processes with more memory than they may have."""
    sizes = {f"broker {name}": size for name, size in memory_of(deployment).items()}
    sizes["the process that records"] = own_memory()
    return [
        f"{name} has {size >> 20} MiB of memory, and may have {MEMORY >> 20}"
        for name, size in sizes.items()
        if size > MEMORY
    ]


def own_memory() -> int:
    """Resident bytes of this process."""
    return int(psutil.Process().memory_info().rss)


def memory_of(deployment: Deployment) -> Mapping[str, int]:
    """Resident bytes of each broker's process."""
    found: dict[str, int] = {}
    for broker in brokers_of(deployment):
        try:
            found[f"{broker.cluster}/{broker.id}"] = (
                psutil.Process(broker.pid).memory_info().rss if broker.pid else 0
            )
        except psutil.NoSuchProcess:
            found[f"{broker.cluster}/{broker.id}"] = 0
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """The times, in nanoseconds, in which faults of a run explain errors."""

    spans: Sequence[tuple[int, int]]

    def gaps(self, end: int) -> Iterator[tuple[int, int]]:
        """The times outside of them, from the beginning to `end`."""
        at = 1
        for begin, over in sorted(self.spans):
            if begin > at:
                yield at, begin - 1
            at = max(at, over + 1)
        if at <= end:
            yield at, end


def unexplained(run: Path) -> Sequence[str]:
    """Brokers that died by themselves, and errors in the brokers' logs of a run directory that no
    fault explains: logged when none was under way, and none had just ended. The first of each kind.

    A mirror ends with its run, and logs errors when it is stopped (MirrorMaker 2: `AdminClient is
    closing`).
    """
    reader = RunReader(run)
    events, _ = reader.events()
    ends = {e.id: e.time for e in of_kind(events, FaultEnd)}
    last = 1 << 62
    windows = Windows(
        spans=[
            (e.time, ends[e.id] + _AFTER_FAULT if e.id in ends else last)
            for e in of_kind(events, FaultStart)
        ]
    )
    logs = process_logs.read(run, reader.run.started, reader.run.ended)
    found = [
        f"{where} has the error {line.text[:_LONGEST]}"
        for begin, end in windows.gaps(last)
        for line in logs.between(begin, end)
        if line.level == "ERROR" and not line.text.endswith(_STATE_CHANGES)
        for where in line.where
        if Path(where).name.startswith(_LOG_OF_BROKERS)
    ]
    died = [f"broker {each.broker} died by itself" for each in of_kind(events, BrokerDied)]
    return [*died, *dict.fromkeys(found), *logs.unread]


def first_error(path: Path, since: int) -> Iterator[str]:
    """The first error in a broker's log file after byte `since`. A file that is shorter by now was
    begun again, and is read from the start."""
    if not path.exists():
        return
    with path.open("rb") as log:
        log.seek(since if path.stat().st_size >= since else 0)
        first = _ERROR.search(log.read())
    if first:
        yield (
            f"{path.parent.parent.name}/{path.parent.name} logged "
            f"{first[0][:_LONGEST].decode(errors='replace')}"
        )


def sizes_of(paths: Collection[Path]) -> dict[Path, int]:
    """The size of each file; 0 for one that is not there."""
    return {path: path.stat().st_size if path.exists() else 0 for path in paths}

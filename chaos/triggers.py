"""Triggers: conditions that a fault waits for, so that it starts in a chosen log state and not at a
guessed second.

A trigger is a function of the fault and the world. It looks at the state of the logs, or at the
change of that state since the fault began to wait (CHANGES). `FaultSpec.when` joins any number of
them with `and`, each with a minimum count if it differs from the default. It also names the faults
that must have ended before (`after:`), and those that must have begun and not ended (`during:`):

    open-transactions
    after:flap,slow and open-transactions:3
    during:failover and mirror-behind:50
    after:failover and requested:Fetch
    requested:EndTxn of payments
    in-flight:Produce:3
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from linkflap.chaos.faults.base import data_partitions
from linkflap.harness.model.interference import (
    APIS,
    OF_TRANSACTIONS,
    WITH_PARTITIONS,
    Requests,
)
from linkflap.harness.model.protocols import FaultWorld, MirrorStage, ReportsStage
from linkflap.harness.model.scenario import FaultSpec
from linkflap.harness.model.topology import TopicPartition, is_data_topic
from linkflap.harness.model.wait import now
from linkflap.harness.wire.librdkafka import Bound, answered_bounds, leader_epochs, quiet

ANSWERS_WITHIN: Final = 2.0
_REBALANCING: Final = (
    ConsumerGroupState.PREPARING_REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING,
)


def source(spec: FaultSpec) -> str:
    """The source of the target link, the cluster of the target broker, or the one to which the
    target path of clients leads."""
    return spec.on.entered


def _destination(spec: FaultSpec, world: FaultWorld) -> str:
    """The cluster to which the target leads; empty if it is no link to a cluster."""
    name = spec.on.destination
    return name if name in world.deployment.clusters else ""


def home_partitions(cluster: str, world: FaultWorld) -> list[tuple[str, int]]:
    """(topic, partition) of the data topics whose home is this cluster."""
    return data_partitions(world, world.deployment.topology.named(cluster))


def mirror_holds(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """The mirror holds records that it has fetched and the destination's replicas do not have yet;
    `:5000`, at least 5000 bytes of them."""
    stage = _mirror_stage(spec, world)
    return stage is not None and stage.held >= least


def handing_over(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """The mirror is handing its topics over: a failover has begun and not ended."""
    stage = _mirror_stage(spec, world)
    return stage is not None and stage.handing_over


def partly_promoted(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """During a failover: the destination's own brokers lead some of the mirrored partitions, and
    not all; `:2`, at least two."""
    destination = _destination(spec, world) or source(spec)
    cluster = world.deployment.clusters[destination]
    stage = _mirror_stage(spec, world)
    if stage is None or not stage.handing_over:
        return False
    led = _leaders(destination, world)
    promoted = [
        led.get(tp, -1) in cluster.brokers for tp in _mirrored_partitions(destination, world)
    ]
    return least <= sum(promoted) < len(promoted)


def _mirror_stage(spec: FaultSpec, world: FaultWorld) -> MirrorStage | None:
    """The state that the target's mirror reports, or for a cluster the mirror into it. None if the
    mirror does not answer."""
    cluster = spec.target.removeprefix("*->") if spec.target.startswith("*") else source(spec)
    named = (
        [spec.target]
        if spec.target in world.mirrors
        else [n for n in world.mirrors if n.endswith(f"->{cluster}")]
    )
    mirrors = [world.mirrors[name] for name in named]
    return next(
        (
            found
            for m in mirrors
            if isinstance(m, ReportsStage) and (found := m.stage()) is not None
        ),
        None,
    )


def _mirrored_partitions(cluster: str, world: FaultWorld) -> list[tuple[str, int]]:
    """(topic, partition) of the data topics whose home is another cluster."""
    return [
        (name, n)
        for name, count in dict(world.topics).items()
        if not is_data_topic(name, (cluster,))
        for n in range(count)
    ]


def _leaders(cluster: str, world: FaultWorld) -> dict[tuple[str, int], int]:
    """(topic, partition) -> broker id of its leader, from the cluster's metadata. Empty while the
    cluster does not answer."""
    try:
        topics = (
            AdminClient(quiet(world.deployment.clusters[cluster].bootstrap))
            .list_topics(timeout=ANSWERS_WITHIN)
            .topics
        )
    except KafkaException:
        return {}
    return {
        (name, number): p.leader
        for name, topic in topics.items()
        for number, p in topic.partitions.items()
    }


def rebalancing(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """A consumer group on the target's source is rebalancing; `:2`, at least two groups."""
    admin = AdminClient(quiet(world.deployment.clusters[source(spec)].bootstrap))
    try:
        states = set(_REBALANCING)
        found = admin.list_consumer_groups(states=states, request_timeout=ANSWERS_WITHIN).result(
            2 * ANSWERS_WITHIN
        )
    except (KafkaException, TimeoutError):
        return False
    return len(found.valid) >= least


def epochs(spec: FaultSpec, world: FaultWorld) -> dict[TopicPartition, int]:
    """The leader epoch of a partition of the target's source has changed since the fault began to
    wait; `:2`, of at least two partitions.
    """
    admin = AdminClient(quiet(world.deployment.clusters[source(spec)].bootstrap))
    return leader_epochs(admin, home_partitions(source(spec), world), within=ANSWERS_WITHIN)


UNDER_WAY: Final = 1000
SEEN: Final = 100
_AFTER: Final = "after:"
_DURING: Final = "during:"
_AND: Final = " and "
_ALWAYS: Final = "always"
SEEN_ON_BOTH_SIDES: Final = "seen-on-both-sides"
"""The trigger of the first failover of a scenario: without records on both sides, a failover has
nothing to lose."""


class TriggerCondition(Protocol):
    """Whether the condition is true now. `least` is the minimum count; each trigger has its own
    default."""

    def __call__(self, spec: FaultSpec, world: FaultWorld, least: int = ...) -> bool: ...


def _always(spec: FaultSpec, world: FaultWorld, least: int = 0) -> bool:
    """No condition: the fault starts at its time."""
    return True


def _open_transactions(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """A transaction on the target's source has written records and has not ended; `:3`, at least
    three at once."""
    return world.clients.open_transactions(source(spec)) >= least


def _open_partitions(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """The last stable offset of a partition on the target's source is below its high watermark;
    `:3`, of at least three partitions."""
    return _count_unstable(source(spec), world) >= least


def _open_at_destination(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """A partition on the link's destination has records of a transaction and not its marker; `:3`,
    at least three partitions."""
    return _count_unstable(_destination(spec, world) or spec.on.source, world) >= least


def _count_unstable(cluster: str, world: FaultWorld) -> int:
    """The number of partitions on a cluster whose last stable offset is below the high watermark.

    Partitions of every home count, because after a failover the clients of another home write here.
    Partitions that do not exist on the cluster give no answer.
    """
    admin = AdminClient(quiet(world.deployment.clusters[cluster].bootstrap))
    every = [(topic, n) for topic, count in dict(world.topics).items() for n in range(count)]
    # The order matters: a transaction may end between the two requests. With this order, the count
    # is then too low; it is never too high.
    high = answered_bounds(admin, every, "high", within=ANSWERS_WITHIN)
    stable = answered_bounds(admin, every, "stable", within=ANSWERS_WITHIN)
    return sum(stable[tp] < end for tp, end in high.items() if tp in stable)


def _commit_in_flight(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """A commit is in flight on the target's source (requested, not returned); `:2`, at least two at
    once."""
    return world.clients.commits_in_flight(source(spec)) >= least


def _transactions_ended(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """A transaction has been committed or aborted on any cluster; `:100`, at least one hundred."""
    return world.clients.transactions_ended() >= least


def _under_way(spec: FaultSpec, world: FaultWorld, least: int = UNDER_WAY) -> bool:
    """1,000 records were acknowledged on the target's source, or the given number: by then every
    kind of client works."""
    return world.clients.acknowledged_since(0, source(spec)) >= least


def _seen_on_both_sides(spec: FaultSpec, world: FaultWorld, least: int = SEEN) -> bool:
    """Each workload of readers, on the target's source and on its destination, got 100 records, or
    the given number; and a committed offset was sampled of each group on the source.

    So records were committed, mirrored and read before a failover, however slow the machine is. A
    side without readers is not waited for.
    """
    ends = (spec.on.source, spec.on.destination) if not spec.on.broker else ()
    sides = [name for name in ends if name in world.deployment.clusters]
    if not all(read is None or read >= least for read in map(world.clients.read_on, sides)):
        return False
    return not sides or world.clients.groups_on(sides[0]) <= world.sampled_groups(sides[0])


def _segments_deleted(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """Retention has deleted segments of every partition on the target's source: each log start
    offset is at least 1, or the given offset."""
    partitions = home_partitions(source(spec), world)
    starts = _offsets(source(spec), world, partitions, "start")
    return len(starts) == len(partitions) and all(start >= least for start in starts.values())


def _mirrored(spec: FaultSpec, world: FaultWorld, least: int = 100) -> bool:
    """Both clusters have 100 common offsets of every partition, or the given number: the
    destination's high watermark is that far above the source's log start offset."""
    destination = _destination(spec, world)
    partitions = home_partitions(source(spec), world)
    start, high = (
        _offsets(source(spec), world, partitions, "start"),
        _offsets(destination or source(spec), world, partitions, "high"),
    )
    return start.keys() == high.keys() == set(partitions) and all(
        high[tp] - start[tp] >= least for tp in partitions
    )


def _offsets(
    cluster: str, world: FaultWorld, partitions: list[tuple[str, int]], which: Bound
) -> dict[tuple[str, int], int]:
    admin = AdminClient(quiet(world.deployment.clusters[cluster].bootstrap))
    return answered_bounds(admin, partitions, which, within=ANSWERS_WITHIN)


def _mirror_behind(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """The mirror is behind its source, so that a kill now interrupts its copying; `:50`, at least
    50 records behind."""
    mirror = world.mirrors.get(spec.target)
    return mirror is not None and (mirror.lag() or 0) >= least


def _group_ahead(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """A consumer group has committed an offset on the target's source that is above the high
    watermark of the destination, which has the same offsets; `:50`, at least 50 records above. If
    the source fails now, the commit lies behind the truncation of a failback.
    """
    name, destination = source(spec), _destination(spec, world)
    if not destination:
        return False
    # The order matters: a commit may be old, and a high watermark must not be.
    commits = [world.group_offsets(name, group) for group in world.sampled_groups(name)]
    high = _offsets(destination, world, home_partitions(name, world), "high")
    return any(
        tp in high and offset - high[tp] >= least
        for group in commits
        for tp, offset in group.items()
    )


def _program_stopped(spec: FaultSpec, world: FaultWorld, least: int = 1) -> bool:
    """A user's program on the target's source has stopped itself with SIGSTOP, to mark a moment at
    which it can be killed.
    """
    return sum(program.any_suspended for program in world.clients.programs(source(spec))) >= least


MIRRORED_AT_ONCE: Final = frozenset({"handing-over", "mirror-holds", "partly-promoted"})
"""Triggers that only a running mirror makes true: without its process they are false."""
MIRRORED_LATER: Final = frozenset({"mirrored", SEEN_ON_BOTH_SIDES})
"""Triggers that what a mirror has brought makes true, for a while after its death too."""

Change = Callable[[FaultSpec, FaultWorld], Mapping[TopicPartition, int]]
"""Values that a trigger compares with those at the time when the fault began to wait."""
CHANGES: Mapping[str, Change] = MappingProxyType({"leader-epoch-changed": epochs})
"""Triggers that are true once enough values have changed (default: 1)."""


def _requested(what: Requests, spec: FaultSpec, world: FaultWorld) -> int:
    """Recorded programs have sent a request of this API to the target's source since the fault
    began to wait; `:3`, three requests. `requested:EndTxn of ID` waits for one of a transactional
    id, `requested:Produce on A.orders/0` for one that names a partition.
    """
    recorder = world.deployment.recorders.get(source(spec))
    return 0 if recorder is None else recorder.requested(what)


def _sent_and_unanswered(spec: FaultSpec, world: FaultWorld) -> None:
    """Recorded programs have sent requests of this API to the target's source that have no answer
    yet; `:3`, on at least three partitions, or three requests if the API names no partitions.
    """


_REQUESTED: Final = "requested:"
_IN_FLIGHT: Final = "in-flight:"
_ON_THE_WIRE: Final = re.compile(
    rf"({_REQUESTED}|{_IN_FLIGHT})(\w+)(?: of (\S+))?(?: on ([\w.-]+?)(?:/(\d+))?)?"
)


def requests(name: str) -> Requests | None:
    """The requests that a trigger counts: those since the fault began to wait, or those in flight.
    None for other triggers, and for requests that do not name what the trigger does."""
    found = _ON_THE_WIRE.fullmatch(name)
    if found is None:
        return None
    kind, api, transactional_id, topic, partition = found.groups()
    if api not in APIS:
        return None
    if (transactional_id and api not in OF_TRANSACTIONS) or (topic and api not in WITH_PARTITIONS):
        return None
    return Requests(
        api=api,
        topic=topic or "",
        partition=-1 if partition is None else int(partition),
        transactional_id=transactional_id or "",
        in_flight=kind == _IN_FLIGHT,
    )


def counted(schedule: Iterable[FaultSpec]) -> Sequence[Requests]:
    """The requests that faults of a schedule wait for, without those of a whole API."""
    every = (requests(name) for spec in schedule for name, _ in condition(spec.when).triggers)
    return tuple(dict.fromkeys(each for each in every if each is not None and not each.of_api))


TRIGGERS: Mapping[str, TriggerCondition] = MappingProxyType(
    {
        _ALWAYS: _always,
        "open-transactions": _open_transactions,
        "open-partitions": _open_partitions,
        "open-at-destination": _open_at_destination,
        "commit-in-flight": _commit_in_flight,
        "group-ahead": _group_ahead,
        "handing-over": handing_over,
        "mirror-behind": _mirror_behind,
        "mirror-holds": mirror_holds,
        "mirrored": _mirrored,
        "partly-promoted": partly_promoted,
        "program-stopped": _program_stopped,
        "rebalancing": rebalancing,
        SEEN_ON_BOTH_SIDES: _seen_on_both_sides,
        "segments-deleted": _segments_deleted,
        "transactions-ended": _transactions_ended,
        "under-way": _under_way,
    }
)
_LASTING: Final = frozenset(
    {SEEN_ON_BOTH_SIDES, "segments-deleted", "transactions-ended", "under-way"}
)
"""Triggers that stay true once they are true: their counts never decrease."""
_LASTING_EVERY: Final = 20_000_000
"""Nanoseconds between two evaluations of a lasting trigger, because each evaluation queries every
client process. Other triggers are evaluated without a pause: their moment may be short.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The conditions for which a fault waits: faults that must have ended, faults that must have
    begun and not ended, and triggers.

    `triggers` are pairs (name, least); least is None for the trigger's own default.
    """

    after: tuple[str, ...] = ()
    during: tuple[str, ...] = ()
    triggers: tuple[tuple[str, int | None], ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        """Every fault that must have begun."""
        return (*self.after, *self.during)

    def watch(self, spec: FaultSpec, world: FaultWorld) -> Callable[[], bool]:
        """A function that returns whether all triggers are true. Triggers of CHANGES compare with
        the values at the time of this call.
        """
        evaluations = [_evaluation(name, least, spec, world) for name, least in self.triggers]
        return lambda: all(one() for one in evaluations)

    def holds(self, spec: FaultSpec, world: FaultWorld) -> bool:
        """Whether all triggers are true now."""
        return self.watch(spec, world)()

    def __str__(self) -> str:
        """The text of `FaultSpec.when`: the inverse of `condition`."""
        terms = [f"{_AFTER}{','.join(self.after)}"] if self.after else []
        terms += [f"{_DURING}{','.join(self.during)}"] if self.during else []
        terms += [name if least is None else f"{name}:{least}" for name, least in self.triggers]
        return _AND.join(terms) or _ALWAYS


def _evaluation(
    name: str, least: int | None, spec: FaultSpec, world: FaultWorld
) -> Callable[[], bool]:
    """A function that evaluates one trigger."""
    if name in TRIGGERS:
        trigger = TRIGGERS[name]
        evaluate = (
            partial(trigger, spec, world) if least is None else partial(trigger, spec, world, least)
        )
        return _until_true(evaluate) if name in _LASTING else evaluate
    if (what := requests(name)) is not None:
        begun = 0 if what.in_flight else _requested(what, spec, world)
        return lambda: _requested(what, spec, world) - begun >= (1 if least is None else least)
    look, first = CHANGES[name], dict[TopicPartition, int]()

    def changed() -> bool:
        seen = look(spec, world)
        for key, value in seen.items():
            first.setdefault(key, value)
        return sum(value != first[key] for key, value in seen.items()) >= (
            1 if least is None else least
        )

    changed()
    return changed


def _until_true(evaluate: Callable[[], bool]) -> Callable[[], bool]:
    """Wraps a trigger of _LASTING: evaluates it every _LASTING_EVERY nanoseconds until it is true,
    and never again."""
    true, evaluated = False, 0

    def evaluate_until_true() -> bool:
        nonlocal true, evaluated
        if not true and now() - evaluated >= _LASTING_EVERY:
            evaluated = now()
            true = evaluate()
        return true

    return evaluate_until_true


def condition(when: str) -> Condition:
    """Parses `FaultSpec.when`. An unknown name stays among the triggers; the caller finds it with
    `unknown`."""
    after_: list[str] = []
    during: list[str] = []
    triggers: list[tuple[str, int | None]] = []
    for term in when.split(_AND):
        if term.startswith(_AFTER):
            after_ += term.removeprefix(_AFTER).split(",")
        elif term.startswith(_DURING):
            during += term.removeprefix(_DURING).split(",")
        elif term != _ALWAYS:
            name, _, least = term.rpartition(":")
            counts = least.isdecimal() and int(least) > 0
            triggers.append((name, int(least)) if counts else (term, None))
    return Condition(after=tuple(after_), during=tuple(during), triggers=tuple(triggers))


def unknown(condition: Condition) -> str | None:
    """The first name that no trigger has, or None."""
    return next(
        (n for n, _ in condition.triggers if n not in known() and requests(n) is None),
        None,
    )


def known() -> Sequence[str]:
    """The names of all triggers."""
    of_requests = (f"{kind}{api}" for kind in (_REQUESTED, _IN_FLIGHT) for api in APIS)
    return sorted((*TRIGGERS, *CHANGES, *of_requests))


def documented(name: str) -> object:
    """The function whose docstring says when a trigger is true."""
    of_requests = _sent_and_unanswered if name.startswith(_IN_FLIGHT) else _requested
    return TRIGGERS.get(name) or CHANGES.get(name, of_requests)


def recorded_only(condition: Condition) -> bool:
    """Whether the condition waits for requests of programs, which only a recorder can see."""
    return any(requests(name) is not None for name, _ in condition.triggers)


def after(*faults: str, once: str = _ALWAYS) -> str:
    """The text of `FaultSpec.when` for a fault that follows other faults and then waits for the
    trigger `once`."""
    return f"{_AFTER}{','.join(faults)}" + (f"{_AND}{once}" if once != _ALWAYS else "")

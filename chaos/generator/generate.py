"""Generates a scenario from (seed, number, coverage so far, bounds): draws several candidates and
takes the one that adds most to the coverage."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from typing import Final

from linkflap.chaos import schedule
from linkflap.chaos.default_workloads import default_workloads, default_workloads_of
from linkflap.chaos.faults import ON_THE_WIRE
from linkflap.chaos.generator import packages
from linkflap.chaos.generator.bounds import GeneratorBounds, arrows_of
from linkflap.chaos.generator.coverage import Coverage, cells_of
from linkflap.chaos.generator.packages import Draft, of_mirror
from linkflap.harness import mirrors
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import (
    NO_MIRROR,
    PRODUCERS,
    FaultSpec,
    Minimums,
    MirrorSpec,
    Option,
    Scenario,
    TopicSpec,
    WorkloadSpec,
    with_library,
)
from linkflap.harness.model.topology import LinkSpec, Topology, of_release
from linkflap.harness.workloads import KINDS
from linkflap.harness.workloads.producers import COMMON
from linkflap.topologies import parse

CANDIDATES: Final = 12
TRIES: Final = 200
_SHORT: Final = 3
"""The fixed cost of a run (start, end), in the cost of one fault."""
_DEAD: Final = 0.5
"""The share of forced failovers with a killed source, for mirrors that may refuse such a failover;
the others suspend the source."""
TURNS: Final = (0, 0, 1, 1, 1, 2, 3)
"""How many failovers a scenario has, back and forth; drawn evenly."""
RETENTION: Final = "retention.bytes"
MINIMUMS: Final = Minimums(committed=5, aborted=1, reads=20, afterwards=300)


def generate(
    seed: int, number: int, coverage: Coverage, bounds: GeneratorBounds, *, guided: bool = True
) -> Scenario:
    """Scenario `number` of a suite. `guided` takes the candidate whose cells were hit most rarely;
    otherwise the first one drawn is taken."""
    candidates = [_drawn(seed, number, n, bounds) for n in range(CANDIDATES if guided else 1)]
    # A long schedule always has new cells, but also takes longer. So novelty is divided by the cost
    # of the run.
    return max(
        candidates,
        key=lambda made: coverage.novelty(cells_of(made)) / (_SHORT + len(made.schedule)),
    )


def baseline(seed: int, bounds: GeneratorBounds) -> Scenario:
    """The baseline: the clients of a suite without faults. A failure there was not caused by a
    fault."""
    rng = random.Random(f"linkflap suite {seed} baseline")
    made = _scenario(seed, bounds, rng, name="baseline")
    return replace(made, schedule=(), about="nothing is broken")


def _drawn(seed: int, number: int, candidate: int, bounds: GeneratorBounds) -> Scenario:
    """One playable candidate. Raises InputError if none is found in TRIES attempts: then the bounds
    allow none."""
    for attempt in range(TRIES):
        rng = random.Random(f"linkflap suite {seed} {number} {candidate} {attempt}")
        made = _scenario(rng.getrandbits(32), bounds, rng, name=f"generated-{number:04d}")
        if made.schedule and playable(made):
            return made
    raise InputError(
        f"no fault of {', '.join(bounds.allowed)} can be played on {', '.join(bounds.topologies)} "
        f"with mirror {' or '.join(bounds.mirrors)}; allow more topologies, mirrors or faults"
    )


def playable(scenario: Scenario) -> bool:
    """Whether a scenario passes all checks that linkflap makes before it starts anything."""
    try:
        schedule.check_scenario(scenario)
        reversed_ = any(fault.name.reverses for fault in scenario.schedule)
        mirrors.check(scenario.mirror, reversible=reversed_)
        mirrors.check_played(scenario)
    except InputError:
        return False
    return True


def _scenario(seed: int, bounds: GeneratorBounds, rng: random.Random, *, name: str) -> Scenario:
    topology, mirror, topics = _setting(bounds, rng)
    guarantee = mirrors.resolve(mirror).guarantee
    if topology.links:
        bounds = _without(bounds, mirrors.MIRRORS[mirror.kind].without)
    if topology.links and not guarantee.offsets_kept:
        # A copy at another offset can be compared only while the original exists.
        topics = replace(
            topics,
            config={name: value for name, value in topics.config.items() if name != RETENTION},
        )
        bounds = _without(bounds, packages.OF_KEPT_OFFSETS)
    # Retention may delete all records that were mirrored before a failover. Then there is nothing
    # to judge.
    turns = 0 if RETENTION in topics.config else rng.choice(TURNS)
    draft = Draft(
        topology=topology,
        rng=rng,
        partitions=topics.partitions,
        copies_transactions=guarantee.offsets_kept or guarantee.delivery == "exactly-once",
        workloads=bounds.like.workloads if bounds.like else None,
    )
    _story(draft, bounds, turns=turns, reversible=guarantee.reversible)
    if topology.links and mirrors.MIRRORS[mirror.kind].asks_source:
        draft.faults = [_source_may_stall(fault, rng) for fault in draft.faults]
    workloads = _with_clients(_workloads(topology, topics, bounds, rng), bounds, rng)
    made = bounds.like or Scenario(
        name="",
        about="",
        seed=0,
        topology=topology,
        mirror=mirror,
        workloads=_through_recorders(workloads, draft.faults),
        schedule=(),
        minimums=MINIMUMS,
        topics=topics,
        duration=3.0,
    )
    return replace(
        made,
        name=name,
        about="faults drawn by a suite",
        seed=seed,
        schedule=tuple(_not_too_far_behind(fault, made.workloads) for fault in draft.faults),
    )


def _setting(bounds: GeneratorBounds, rng: random.Random) -> tuple[Topology, MirrorSpec, TopicSpec]:
    """The part of a scenario without its faults: from the bounds' scenario, or drawn."""
    if like := bounds.like:
        return like.topology, like.mirror, like.topics
    topology = _topology(bounds, rng)
    return topology, _mirror(bounds, rng) if topology.links else NO_MIRROR, _topics(rng)


def _without(bounds: GeneratorBounds, left_out: Container[str]) -> GeneratorBounds:
    """The bounds without these faults. If no fault is left, the named ones stay: the scenario is
    then not playable, and the error names them."""
    allowed = tuple(name for name in bounds.allowed if name not in left_out)
    return replace(bounds, faults=allowed or bounds.faults)


def _source_may_stall(fault: FaultSpec, rng: random.Random) -> FaultSpec:
    """Gives some forced failovers (1 - _DEAD) a suspended source, because not every mirror fails
    over from a dead one."""
    if not fault.name.forced or rng.random() < _DEAD:
        return fault
    return replace(fault, options={**fault.options, "source": "stalled"})


def _not_too_far_behind(fault: FaultSpec, workloads: Sequence[WorkloadSpec]) -> FaultSpec:
    """Lets a fault wait for a mirror that is behind at all, if operations have fewer records than
    it would wait for: a mirror that nothing disturbs is then never so far behind."""
    records = (
        w.options.get("records", KINDS[w.kind].options["records"].default)
        for w in workloads
        if w.kind in PRODUCERS
    )
    if any(isinstance(each, int) and each >= packages.FAR for each in records):
        return fault
    return replace(
        fault, when=fault.when.replace(f"{packages.BEHIND}:{packages.FAR}", packages.BEHIND)
    )


def _story(draft: Draft, bounds: GeneratorBounds, *, turns: int, reversible: bool) -> None:
    """Draws the schedule: faults, a failover, more faults, a failback, and so on, with `turns`
    failovers and failbacks in total."""
    topology, rng = draft.topology, draft.rng
    _begin(draft)
    link = _first(topology)
    turns = turns if link else 0
    faults = rng.randint(0 if turns else 1, bounds.most)
    steps: list[Callable[[], None]] = [lambda: packages.disturb(draft, bounds)] * faults
    rng.shuffle(steps)
    share = [rng.randint(0, faults) for _ in range(turns)]
    forced = False
    for turn in range(turns):
        for step in steps[: share[turn]]:
            step()
        del steps[: share[turn]]
        if link is None or (turn and not (reversible and _clean(topology, link, forced=forced))):
            break
        if turn:
            packages.reverse(draft, bounds, link)
            link = LinkSpec(source=link.destination, destination=link.source)
        forced = rng.random() < 0.6
        packages.fail_over(draft, bounds, link, forced=forced, back=turn + 1 < turns and reversible)
    for step in steps:
        step()


def _begin(draft: Draft) -> None:
    """The state at the start: every cluster runs, every link is mirrored, all clients are at
    home."""
    draft.up = {cluster.name for cluster in draft.topology.clusters}
    draft.mirrored = {link.name for link in draft.topology.links}
    written = {each.home for each in draft.workloads or ()}
    draft.at = {home: home for home in draft.topology.homes if not written or home in written}


def _clean(topology: Topology, link: LinkSpec, *, forced: bool) -> bool:
    """Whether a failback over this link truncates no records that another mirror has copied. What
    readers of such copies may see is undefined."""
    return not forced or not any(
        other.source == link.source and other.destination != link.destination
        for other in topology.links
    )


def _first(topology: Topology) -> LinkSpec | None:
    """The link for failovers, or None. Its source is no mirror's destination and has no other link,
    and the link carries the topics of one home."""
    into = {link.destination for link in topology.links}
    able = [
        link
        for link in topology.links
        if link.source not in into
        and len(topology.homes_over(link)) == 1
        and _alone(topology, link)
    ]
    return able[0] if able else None


def _alone(topology: Topology, link: LinkSpec) -> bool:
    """Whether the source has no other link. The mirror of another link would lose its source."""
    return sum(other.source == link.source for other in topology.links) == 1


_RECORDS: Mapping[str, tuple[Option, ...]] = {
    "value_size": (1, 50, 2000, 20_000),
    "keys": (1, 1000),
    "skew": (4.0,),
    "tombstones": (0.2,),
    "records": (1, 5, 60),
    "partitions": (1, 3),
    "compression": ("lz4", "zstd", "snappy", "gzip"),
}
"""Options of the workloads that shape records, with the values that are drawn besides the
default."""
_OPERATION: Final = 40_000
"""The most bytes of the values of one operation. With 1.2 MB, forty operations a second on two
clusters of three brokers write 37 GB in minutes, captures included."""
_TOPICS: tuple[Mapping[str, str], ...] = (
    {},
    {},
    {"segment.ms": "1000"},
    {"message.timestamp.type": "LogAppendTime"},
    {"segment.ms": "1000", "retention.bytes": "300000"},
)
"""Topic configs; the default twice, so that it is drawn more often.

Compacted topics are not drawn (the scenario `compacted-topic` covers them): a cleaner takes records
whose keys nothing shows any more, and then a run is unknown."""


def _topology(bounds: GeneratorBounds, rng: random.Random) -> Topology:
    """A topology within the bounds; each cluster gets one of the Kafka releases."""
    drawn = parse(arrows_of(rng.choice(bounds.topologies)))
    return of_release(drawn, lambda: rng.choice(bounds.kafka))


def _topics(rng: random.Random) -> TopicSpec:
    """The number of partitions and the config of the topics."""
    return TopicSpec(partitions=rng.choice([1, 2, 2, 3, 5]), config=dict(rng.choice(_TOPICS)))


def _workloads(
    topology: Topology, topics: TopicSpec, bounds: GeneratorBounds, rng: random.Random
) -> tuple[WorkloadSpec, ...]:
    """The default workloads of each home, with the same shape of records. Sometimes a relay is
    added, on two clusters with default topics."""
    records = {name: rng.choice(values) for name, values in _RECORDS.items() if rng.random() < 0.25}
    if "retention.bytes" in topics.config:
        records.pop("value_size", None)  # large records: deleted before a reader gets them
    if "value_size" in records:
        most = max(1, _OPERATION // int(records["value_size"]))
        if int(records.get("records", COMMON["records"].default)) > most:
            records["records"] = most
    # The only path of one cluster is that of its clients.
    way: Mapping[str, Option] = {} if topology.links else {"via": "proxy"}
    every = topology.homes
    of_home = default_workloads_of if len(every) > 1 else default_workloads
    found = [
        # The options of records apply only to workloads that write; readers do not have them.
        replace(w, options={**w.options, **_known({**records, **way}, KINDS[w.kind].options)})
        for home in every
        for w in of_home(topology, home)
    ]
    if len(topology.clusters) == 2 and rng.random() < 0.25 and not topics.config:
        found.append(
            WorkloadSpec(
                kind="relay",
                home=every[0],
                clients=1,
                options={"rate": 8.0, "group": "linkflap.relay"},
            )
        )
    return tuple(found)


def _known(options: Mapping[str, Option], known: Container[str]) -> Mapping[str, Option]:
    return {name: value for name, value in options.items() if name in known}


def _with_clients(
    workloads: tuple[WorkloadSpec, ...], bounds: GeneratorBounds, rng: random.Random
) -> tuple[WorkloadSpec, ...]:
    """The workloads with clients of one library within the bounds, or of all libraries,
    alternating."""
    crews = bounds.crews
    # With one choice, nothing is drawn: a draw would change the scenarios of every existing seed.
    return with_library(workloads, crews[0] if len(crews) == 1 else rng.choice(crews))


def _through_recorders(
    workloads: tuple[WorkloadSpec, ...], faults: Sequence[FaultSpec]
) -> tuple[WorkloadSpec, ...]:
    """The workloads, with clients that connect through recorders if a fault needs those. They are
    also behind the proxies of clients: all but the first workload keep these."""
    if ON_THE_WIRE.isdisjoint(fault.fault for fault in faults):
        return workloads
    return tuple(
        replace(w, options={**w.options, "via": "wire"})
        if "via" in KINDS[w.kind].options and (not nth or w.options.get("via") != "proxy")
        else w
        for nth, w in enumerate(workloads)
    )


def _mirror(bounds: GeneratorBounds, rng: random.Random) -> MirrorSpec:
    """A mirror within the bounds, with some of its options."""
    kind = rng.choice(bounds.mirrors)
    return MirrorSpec(kind=kind, options=dict(of_mirror(kind, rng)))

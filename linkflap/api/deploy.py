"""`linkflap.deploy`: clusters, links and mirrors for a with statement. The block is recorded while
it runs and judged after it.

It records like `linkflap run` (linkflap.recording): with the same sampler, captures, mirrors and
faults. The block takes the place of the schedule.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

from linkflap.api import runs
from linkflap.api.faults import Faults
from linkflap.api.own_clients import OwnClients
from linkflap.api.world import World
from linkflap.chaos.schedule import check_recorded
from linkflap.harness import mirrors, runtimes, workloads
from linkflap.harness.capture import samplers
from linkflap.harness.capture.live.captures import DiskOrFetchCaptures
from linkflap.harness.capture.samplers import SettingsSampler
from linkflap.harness.guarantees import declared
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.model.payload import drawn_seed
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import (
    COMMAND,
    NO_MIRROR,
    Minimums,
    MirrorSpec,
    Option,
    Scenario,
    WorkloadSpec,
    groups_of_program,
)
from linkflap.harness.model.threads import side_by_side, stop_all
from linkflap.harness.model.topology import Topology
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.workloads.clients import check_all, make_all
from linkflap.recording import run_end
from linkflap.recording.run import on_the_wire, recorded
from linkflap.recording.run_end import drain
from linkflap.recording.surroundings import java_inside, surroundings
from linkflap.recording.unexpected_exits import UnexpectedExits
from linkflap.recording.world import RunWorld
from linkflap.topologies import parse


def deploy(
    topology: str | Topology = "A->B",
    *,
    topics: Mapping[str, int] | Sequence[str] = (),
    mirror: str | None = None,
    mirror_options: Mapping[str, Option] | None = None,
    workloads: Sequence[WorkloadSpec] = (),
    readers: bool = True,
    record: str = "none",
    group: str = "",
    share_group: str = "",
    folder: str | Path | None = None,
    runtime: str | None = None,
    seed: int | None = None,
    keep: bool = False,
) -> AbstractContextManager[World]:
    """Clusters and links for a with statement, started and checked. The run directory `folder`
    records the block.

    `topics` are created on their home cluster: `{"A.orders": 3}` has three partitions and is
    written on A first. With a `mirror` they are copied over every link. With `readers`, linkflap's
    own clients read them on every cluster that has them, so that reads there are judged too.
    `workloads` are more clients of linkflap's own. With `record="wire"` other clients write the
    topics: what brokers promise them is recorded at `World.recorded` (and behind `*->A`), what
    the consumer `group` commits, and what members of `share_group` get and acknowledge. At
    the end mirrors and readers catch up, and the logs are captured; `World.verify` judges them. If
    the block raises, the logs are captured as they are, and the run counts as failed. `keep` keeps
    the brokers' folders. Raises InputError before anything starts, EnvironmentFailure if the
    machine failed.
    """
    runs.check_arguments(
        topology=topology, topics=topics, mirror=mirror, mirror_options=mirror_options,
        workloads=workloads, readers=readers, record=record, group=group, share_group=share_group,
        folder=folder, runtime=runtime, seed=seed,
    )  # fmt: skip
    scenario = _scenario(topology, topics, mirror, mirror_options or {}, workloads, readers, seed)
    groups = groups_of_program(group, share_group)
    scenario = _with_programs(scenario, _partitions(topics), record, groups)
    if scenario.topology.attached:
        raise InputError(
            "linkflap.deploy starts clusters, and those of this topology run already; play a "
            "scenario on them with linkflap.run"
        )
    chosen = runs.usual(scenario.topology, runtime)
    runtimes.check(chosen, scenario.topology)
    check_recorded(scenario)
    path = runs.new(folder, "deploy")
    began = replace(
        Run.begun(scenario, chosen, f"linkflap.deploy({str(topology)!r})"),
        environment=surroundings(scenario.topology, chosen, scenario.workloads),
    )
    return _Deployed(path, began, dict(_partitions(topics)), keep=keep)


class _Deployed(AbstractContextManager["World"]):
    """The context manager: starts brokers on entry, and captures logs and stops brokers on exit.
    Used once."""

    def __init__(self, folder: Path, run: Run, topics: dict[str, int], *, keep: bool) -> None:
        self._folder, self._run, self._topics, self._keep = folder, run, topics, keep
        self._exits: list[str] = []
        self._session: _Session | None = None
        self._stack = ExitStack()

    def __enter__(self) -> World:
        scenario = self._run.scenario
        with ExitStack() as stack:
            writer, self._exits = stack.enter_context(
                run_end.written(self._folder, replace(self._run, started=now()))
            )
            stack.enter_context(run_end.with_room(writer))
            deployment = runtimes.runtime(self._run.runtime)(
                scenario.topology,
                folder=writer.logs,
                recorder=writer,
                wire=on_the_wire(scenario, self._folder),
            )
            if not self._keep:
                stack.callback(run_end.remove_data, deployment)
            stack.callback(run_end.ended, writer, "deployment", deployment.close)
            writer.describe(java_inside(deployment))
            session = self._session = _Session(
                scenario, deployment, writer, self._run.runtime, self._topics, stack, self._exits
            )
            world = World(
                deployment,
                session.inner,
                session.faults,
                self._folder,
                self._end,
                recorded=bool(scenario.recorded_topics),
            )
            session.start()
            self._stack = stack.pop_all()
        return world

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        self._end(error)

    def _end(self, error: BaseException | None = None) -> None:
        """Captures the logs, and stops everything. Safe to call again."""
        session, self._session = self._session, None
        if session is None:
            return
        with self._stack:
            if error is not None and not isinstance(error, Exception):
                raise error  # the user interrupted the block: do not wait for anything
            if error is not None:
                self._exits.append(f"the block that used it raised {type(error).__name__}: {error}")
            session.finish(drained=error is None)


def _partitions(topics: Mapping[str, int] | Sequence[str]) -> Mapping[str, int]:
    if isinstance(topics, str):
        raise InputError(
            f"topics is the text {topics!r}; give a list of names, or a mapping from names to "
            "numbers of partitions"
        )
    return topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)


def _scenario(
    topology: str | Topology,
    topics: Mapping[str, int] | Sequence[str],
    mirror: str | None,
    options: Mapping[str, Option],
    more: Sequence[WorkloadSpec],
    readers: bool,
    seed: int | None,
) -> Scenario:
    """The scenario of a deployment, for run.json. Raises InputError."""
    made = parse(topology) if isinstance(topology, str) else topology
    if options and not mirror:
        raise InputError("mirror_options need a mirror; name one with mirror=")
    spec = (
        mirrors.resolve(MirrorSpec(kind=mirror, options=options)) if mirror else declared(NO_MIRROR)
    )
    homes = dict.fromkeys(_home(name, count, made) for name, count in _partitions(topics).items())
    specs = list(more)
    check_all(specs)
    for each in specs:
        made.cluster(each.home)
    for home in homes if readers else ():
        reached = [
            link.destination for link in made.links if mirror and home in made.homes_over(link)
        ]
        specs += [
            WorkloadSpec(kind="readers", home=home, options={"cluster": cluster, "assign": True})
            for cluster in dict.fromkeys([home, *reached])
        ]
    return Scenario(
        name="deploy",
        about="clusters for a program, which broke and wrote what it wanted",
        seed=drawn_seed(seed),
        # Without a mirror nothing is copied over the links, whatever their names are.
        topology=made,
        mirror=spec,
        workloads=tuple(specs),
        schedule=(),
        minimums=Minimums(committed=0, aborted=0, reads=0, afterwards=0),
    )


def _with_programs(
    scenario: Scenario, topics: Collection[str], record: str, groups: Mapping[str, Option]
) -> Scenario:
    """The scenario with the caller's own clients as programs that are recorded on the wire: one for
    each home of topics. Raises InputError."""
    if not recorded(record):
        if groups:
            raise InputError(f'{min(groups)} needs record="wire", which records what it does')
        return scenario
    if not topics:
        raise InputError('record="wire" records topics; name them with topics=')
    if both := {w.home for w in scenario.workloads if w.kind != "readers"}:
        raise InputError(
            f'with record="wire" other clients write the topics, and workloads write those of '
            f"{min(both)} too; leave one of them out"
        )
    homes: dict[str, list[str]] = {}
    for topic in topics:
        home, _, name = topic.partition(".")
        homes.setdefault(home, []).append(name)
    programs = tuple(
        WorkloadSpec(
            kind=COMMAND,
            home=home,
            command=("linkflap.deploy",),
            reads=tuple(names),
            writes=tuple(names),
            record="wire",
            progress_within=0,
            options=groups,
        )
        for home, names in homes.items()
    )
    return replace(scenario, workloads=(*scenario.workloads, *programs))


def _home(topic: str, partitions: int, topology: Topology) -> str:
    """The home cluster of a topic. Raises InputError."""
    if not isinstance(topic, str):
        raise InputError(f"topics has {topic!r}; give names of topics")
    home, dot, rest = topic.partition(".")
    known = [cluster.name for cluster in topology.clusters]
    if not dot or not rest or home not in known:
        raise InputError(
            f"the name of topic {topic!r} does not begin with its home cluster; call it "
            f"{known[0]}.{rest or topic}, for example"
        )
    if not isinstance(partitions, int) or not 1 <= partitions <= 1000:
        raise InputError(f"topic {topic} cannot have {partitions} partitions; give 1 to 1000")
    return home


class _Session:
    """Clients, mirrors and samplers that run beside the block, until the logs are captured."""

    def __init__(
        self,
        scenario: Scenario,
        deployment: Deployment,
        writer: RunWriter,
        runtime: str,
        topics: dict[str, int],
        stack: ExitStack,
        exits: list[str],
    ) -> None:
        self._scenario, self._deployment, self._writer = scenario, deployment, writer
        given = dict.fromkeys(
            workloads.topics([w for w in scenario.workloads if w.kind != "readers"]),
            scenario.topics.partitions,
        )
        self._topics = {**given, **topics}
        for topic, partitions in self._topics.items():
            home = deployment.clusters[topic.partition(".")[0]]
            home.create_topic(topic, partitions=partitions)
        bootstraps = {name: cluster.bootstrap for name, cluster in deployment.clusters.items()}
        groups = workloads.groups(scenario.workloads)
        runs = samplers.runs_in(deployment)
        sampler = self._sampler = samplers.WatermarkSampler(
            bootstraps, self._topics, writer, groups=groups, runs=runs
        )
        self._settings = SettingsSampler(bootstraps, self._topics, writer, runs=runs)
        self._shares = samplers.share_group_samplers(
            deployment, scenario.recorded_share_groups, writer
        )
        crews = make_all(
            [w for w in scenario.workloads if not w.command],  # the caller starts its programs
            deployment=deployment,
            topics=self._topics,
            writer=writer,
            seed=scenario.seed,
        )
        self._clients = OwnClients(
            crews,
            writer,
            deployment,
            groups=groups,
            topics=self._topics,
            recorded=bool(scenario.recorded_topics),
        )
        mirrored = scenario.topology.links if scenario.mirror.kind != NO_MIRROR.kind else ()
        self.inner = RunWorld(
            deployment=deployment,
            mirrors={
                link.name: make_mirror(scenario.mirror, link, deployment, writer)
                for link in mirrored
            },
            clients=self._clients,
            recorder=writer,
            sampler=sampler,
            captures=DiskOrFetchCaptures(
                deployment, writer, lambda cluster: sampler.clusters[cluster].latest
            ),
            topics=self._topics,
        )
        self.faults = Faults(self.inner, runtime)
        self._bystanders = UnexpectedExits(self.inner, self.faults.under_way, exits)
        stack.callback(run_end.ended, writer, "watermarks", sampler.stop)
        stack.callback(run_end.ended, writer, "settings", self._settings.stop)
        stack.callback(run_end.ended, writer, "share groups", lambda: stop_all(self._shares))
        stack.callback(run_end.ended, writer, "clients", self._clients.stop)
        stack.callback(self.inner.ending.set)

    def start(self) -> None:
        """Starts sampler, mirrors and clients. Returns when all of them run."""
        self._sampler.start()
        if self._scenario.mirror.guarantee.restores_settings:
            self._settings.start()
        for each in self._shares:
            each.start()
        self._clients.prepare()
        side_by_side(mirror.start for mirror in self.inner.mirrors.values())
        self._bystanders.all_started()
        self._clients.start()

    def finish(self, *, drained: bool) -> None:
        """Stops clients and mirrors, and captures the logs."""
        world = self.inner
        self._clients.stop_producers()
        self._clients.let_go()
        self._bystanders.look()
        if drained:
            drain(world, self._topics, self._watch, died=self._bystanders.mirrors)
        self._clients.stop()
        self._settings.ask_to_stop()
        self._sampler.stop()
        self._settings.stop()
        stop_all(self._shares)
        if drained:
            run_end.stop_mirrors(world)
        else:
            side_by_side(mirror.crash for mirror in world.running_mirrors)
        world.capture_rest(self._bystanders.clusters)
        own = self._clients.workloads_of_own()
        self._writer.revise(replace(self._scenario, workloads=(*self._scenario.workloads, *own)))
        if self._clients.crashes:
            raise EnvironmentFailure(
                f"one of linkflap's own clients failed: {self._clients.crashes[0]}; report it with "
                f"{self._writer.root}"
            )

    def _watch(self) -> bool:
        self._writer.check()
        self._bystanders.look()
        return False

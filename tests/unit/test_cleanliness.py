"""Clusters that another run may use: each thing that a run leaves makes them unclean, and nothing
else does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError

from linkflap.chaos.faults import FAULTS, ON_KEPT
from linkflap.chaos.generator import GeneratorBounds, baseline
from linkflap.harness.model.events import BrokerDied, FaultEnd, FaultStart
from linkflap.harness.model.protocols import Cluster, Deployment
from linkflap.harness.model.scenario import NO_MIRROR, FaultSpec, Scenario, WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec
from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.wire.messages import Error
from linkflap.recording import cleanliness
from linkflap.suite import rounds

MADE = baseline(7, GeneratorBounds())
START = {"1: min.insync.replicas": "1"}
"""The settings of a broker that a release sets by itself when it starts."""


def answered(value: object) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(value)
    return done


@dataclass
class State:
    """The answers of a cluster of one broker; clean by default."""

    state: str = "running"
    died: str = ""
    toxics: tuple[str, ...] = ()
    enabled: bool = True
    holders: frozenset[str] = frozenset()
    brokers: tuple[int, ...] = (1,)
    replicas: Mapping[str, tuple[list[int], list[int], int]] = field(default_factory=dict)
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    silent: tuple[KafkaError, ...] = ()
    ids: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=lambda: START)
    memory: int = 200 << 20
    own_memory: int = 200 << 20

    def list_topics(self, timeout: float) -> object:
        partitions = {
            name: SimpleNamespace(
                partitions={0: SimpleNamespace(id=0, replicas=on, isrs=in_sync, leader=leader)}
            )
            for name, (on, in_sync, leader) in self.replicas.items()
        }
        left = {name: SimpleNamespace(partitions={}) for name in self.topics}
        return SimpleNamespace(topics=partitions | left, brokers=dict.fromkeys(self.brokers))

    def list_consumer_groups(self, request_timeout: float) -> Future[Any]:
        return answered(
            SimpleNamespace(
                valid=[SimpleNamespace(group_id=name) for name in self.groups],
                errors=list(self.silent),
            )
        )


def found_in(state: State, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every reason why clusters in this state are not used again."""

    async def ids(_cluster: Cluster) -> tuple[str, ...]:
        return state.ids

    broker = SimpleNamespace(cluster="A", id=1, state=state.state)
    cluster = cast(Cluster, SimpleNamespace(name="A", bootstrap="x:1", brokers={1: broker}))
    link = SimpleNamespace(
        name="A->B",
        toxics=lambda: state.toxics,
        enabled=state.enabled,
        holders=lambda: state.holders,
    )
    deployment = cast(
        Deployment,
        SimpleNamespace(
            clusters={"A": cluster},
            links={"A->B": link},
            cluster_services={},
            broken=lambda: state.died,
        ),
    )
    monkeypatch.setattr(cleanliness, "AdminClient", lambda _settings: state)
    monkeypatch.setattr(cleanliness, "IN_SYNC_WITHIN", 0.01)
    monkeypatch.setattr(cleanliness, "_transactional_ids", ids)
    monkeypatch.setattr(cleanliness, "settings_of", lambda _cluster: state.settings)
    monkeypatch.setattr(cleanliness, "memory_of", lambda _deployment: {"A/1": state.memory})
    monkeypatch.setattr(cleanliness, "own_memory", lambda: state.own_memory)
    return [
        *cleanliness.broken(deployment),
        *cleanliness.left(cluster, START),
        *cleanliness.too_large(deployment),
    ]


def test_clusters_without_anything_left_are_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_in(State(), monkeypatch) == []


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (State(state="stopped"), "broker A/1 is stopped"),
        (State(state="paused"), "broker A/1 is paused"),
        (State(died="toxiproxy has died"), "toxiproxy has died"),
        (State(toxics=("slow",)), "link A->B has the toxics slow"),
        (State(enabled=False), "link A->B is cut"),
        (State(holders=frozenset({"1-link-cut"})), "link A->B is cut"),
        (State(brokers=()), "cluster A lacks broker 1"),
        (State(brokers=(1, 1000)), "broker 1000 is in cluster A"),
        (State(topics=("A.t",)), "topic A.t is left on cluster A"),
        (State(topics=("__consumer_offsets",)), "topic __consumer_offsets is left on cluster A"),
        (State(groups=("g",)), "group g is left on cluster A"),
        (
            State(silent=(KafkaError(KafkaError.COORDINATOR_LOAD_IN_PROGRESS),)),
            "cluster A does not say what is left (KafkaError{code=COORDINATOR_LOAD_IN_PROGRESS,"
            'val=14,str="Broker: Coordinator load in progress"})',
        ),
        (State(ids=("tx-1",)), "transactional id tx-1 is left on cluster A"),
        (
            State(settings={**START, "1: log.cleaner.threads": "2"}),
            "setting 1: log.cleaner.threads of cluster A is 2",
        ),
        (
            State(settings={"1: min.insync.replicas": "2"}),
            "setting 1: min.insync.replicas of cluster A is 2",
        ),
        (State(settings={}), "setting 1: min.insync.replicas of cluster A is not set"),
        (State(memory=601 << 20), "broker A/1 has 601 MiB of memory, and may have 600"),
        (
            State(own_memory=601 << 20),
            "the process that records has 601 MiB of memory, and may have 600",
        ),
    ],
)
def test_each_leftover_makes_clusters_unclean(
    state: State, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found_in(state, monkeypatch) == [why]


def test_a_coordinator_that_lists_no_transactions_hides_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Loads:
        """A broker that still reads its transactions."""

        def __init__(self, _where: object) -> None: ...

        async def call(self, *_request: object, within: float) -> object:
            del within
            error = Error.coordinator_load_in_progress
            return SimpleNamespace(error_code=error, transaction_states=())

        def close(self) -> None: ...

    monkeypatch.setattr(cleanliness, "Connection", Loads)
    monkeypatch.setattr(cleanliness, "AdminClient", lambda _settings: State())
    monkeypatch.setattr(cleanliness, "settings_of", lambda _cluster: START)
    cluster = cast(Cluster, SimpleNamespace(name="A", bootstrap="127.0.0.1:1"))
    assert cleanliness.left(cluster, START) == [
        "cluster A does not say what is left "
        "(127.0.0.1:1 lists no transactions: coordinator_load_in_progress)"
    ]


@pytest.mark.parametrize(
    "replica", [([1, 2], [1], 1), ([1], [1], -1)], ids=["behind", "without a leader"]
)
def test_a_replica_that_is_not_in_sync_makes_clusters_unclean(
    replica: tuple[list[int], list[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "A.t-0 of cluster A is not in sync" in found_in(
        State(replicas={"A.t": replica}), monkeypatch
    )


def test_the_memory_of_this_process_is_measured() -> None:
    assert cleanliness.own_memory() > 10 << 20


def test_faults_that_no_heal_takes_back_are_known() -> None:
    """A new fault changes clusters for good until somebody has thought about it."""
    assert FAULTS.keys() >= ON_KEPT
    assert not ON_KEPT & rounds.NOT_IN_ROUNDS
    for name in FAULTS:
        made = replace(
            MADE, schedule=(FaultSpec(id="1", fault=name, target="A/1", at=0, duration=0),)
        )
        found = cleanliness.changed_for_good(made)
        assert found == ([] if name in ON_KEPT else [f"{name} changes A/1 for good"])
    assert not ON_KEPT & {
        "rolling-upgrade",
        "broker-disk-full",
        "broker-disk-slow",
        "clock-skew",
        "certificate-expired",
        "broker-memory-limit",
    }


SECOND = 1_000_000_000


def run_with(
    folder: Path,
    lines: Mapping[int, str],
    faults: Mapping[int, int | None] | None = None,
    died: str = "",
) -> Path:
    """A run directory whose broker logged these lines at these seconds of the run, with faults from
    a second until another (None: never ended); broker `died` ended by itself."""
    began = time.time_ns() - 3600 * SECOND
    writer = RunWriter(folder, replace(Run.begun(MADE, "process", ""), started=began))
    for number, (begin, end) in enumerate((faults or {}).items()):
        about: dict[str, Any] = {"id": str(number), "fault": "link-cut", "target": "A->B"}
        writer.write(FaultStart(time=began + begin * SECOND, **about))
        if end is not None:
            writer.write(FaultEnd(time=began + end * SECOND, **about))
    if died:
        writer.write(
            BrokerDied(broker=died, by="itself", status=3, out_of_memory=None, last_words=())
        )
    log = writer.logs / "A" / "1" / "server.log"
    log.parent.mkdir(parents=True)
    log.write_text(
        "".join(f"[{stamp(began + at * SECOND)}] {line}\n" for at, line in sorted(lines.items()))
    )
    writer.close("finished")
    return folder


def stamp(at: int) -> str:
    return datetime.fromtimestamp(at / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%S,000")


ERROR = "ERROR [ReplicaManager broker=1] Something broke (kafka.server.ReplicaManager)"


@pytest.mark.parametrize(
    ("lines", "faults", "clean"),
    [
        ({0: "INFO started"}, {}, True),
        ({0: "INFO started", 5: "WARN slow"}, {}, True),
        ({0: "INFO started", 5: ERROR}, {}, False),
        ({0: "INFO started", 5: ERROR.replace("ERROR", "FATAL")}, {}, False),
        ({0: "INFO started", 5: ERROR}, {4: 6}, True),
        ({0: "INFO started", 9: ERROR}, {4: 6}, True),
        ({0: "INFO started", 12: ERROR}, {4: 6}, False),
        ({0: "INFO started", 3: ERROR}, {4: 6}, False),
        ({0: "INFO started", 12: ERROR}, {4: 6, 11: 13}, True),
        ({0: "INFO started", 30: ERROR}, {4: None}, True),
        ({0: "INFO started", 5: "ERROR [Broker id=1] Expected partition (logger)"}, {}, True),
    ],
)
def test_an_error_in_a_log_is_explained_by_a_fault_of_its_time_and_by_nothing_else(
    lines: Mapping[int, str], faults: Mapping[int, int | None], clean: bool, tmp_path: Path
) -> None:
    found = cleanliness.unexplained(run_with(tmp_path / "run", lines, faults))
    assert (found == []) == clean, found
    assert clean or "Something broke" in found[0]


def test_a_broker_that_died_by_itself_makes_clusters_unclean(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {0: "INFO started"}, died="A/1")
    assert cleanliness.unexplained(run) == ["broker A/1 died by itself"]


def test_an_error_of_a_mirror_that_is_stopped_says_nothing_of_the_clusters(tmp_path: Path) -> None:
    run = run_with(tmp_path / "run", {0: "INFO started", 5: ERROR})
    log = run / "logs" / "services" / "mm2-A-B" / "service.log"
    log.parent.mkdir(parents=True)
    (run / "logs" / "A" / "1" / "server.log").rename(log)
    assert cleanliness.unexplained(run) == []


def test_an_error_in_a_log_since_its_size_is_found(tmp_path: Path) -> None:
    log = tmp_path / "A" / "1" / "server.log"
    log.parent.mkdir(parents=True)
    log.write_text("[now] ERROR old\n")
    sizes = cleanliness.sizes_of([log])
    assert [*cleanliness.first_error(log, sizes[log])] == []
    with log.open("a") as more:
        more.write("[now] INFO fine\n[now] ERROR new\n")
    assert [*cleanliness.first_error(log, sizes[log])] == ["A/1 logged [now] ERROR new"]
    log.write_text("[now] FATAL x\n")
    assert [*cleanliness.first_error(log, sizes[log])] == ["A/1 logged [now] FATAL x"]


def _attached(made: Scenario) -> Scenario:
    clusters = tuple(replace(each, bootstrap="x:9092") for each in made.topology.clusters)
    return replace(made, topology=replace(made.topology, clusters=clusters))


def _clusters(made: Scenario, change: Callable[[ClusterSpec], ClusterSpec]) -> Scenario:
    clusters = tuple(change(each) for each in made.topology.clusters)
    return replace(made, topology=replace(made.topology, clusters=clusters))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (MADE, ""),
        (replace(MADE, mirror=replace(MADE.mirror, kind="mm2")), ""),
        (replace(MADE, mirror=NO_MIRROR), ""),
        (_attached(MADE), "its clusters run already"),
        (
            replace(
                MADE,
                schedule=(
                    FaultSpec(id="1", fault="failover-planned", target="A->B", at=0, duration=0),
                ),
            ),
            "",
        ),
        (_clusters(MADE, lambda each: replace(each, brokers=3)), ""),
        (
            _clusters(
                replace(
                    MADE,
                    schedule=(
                        FaultSpec(id="1", fault="failover-forced", target="A->B", at=0, duration=0),
                    ),
                ),
                lambda each: replace(each, brokers=1 if each.name == "A" else 3),
            ),
            "it has a failover, and clusters of several brokers",
        ),
        (
            replace(MADE, mirror=replace(MADE.mirror, kind="cluster-mirroring")),
            "its mirror is cluster-mirroring",
        ),
        (
            replace(MADE, workloads=(WorkloadSpec(kind="command", home="A", command=("x",)),)),
            "it has programs of the user's",
        ),
        (
            _clusters(MADE, lambda each: replace(each, security="tls")),
            "its clusters are secured",
        ),
    ],
)
def test_runs_that_cannot_have_clusters_of_others_have_their_own(made: Scenario, why: str) -> None:
    assert rounds.needs_own(made) == why

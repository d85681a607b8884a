"""Workloads: their options, the rows of their records, and their readers."""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from confluent_kafka import KafkaError, Message
from hypothesis import given
from hypothesis import strategies as st

from linkflap.harness import workloads
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.payload import FOREIGN, HEADER, KEYS, Values, encode, uid_in
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.model.scenario import Option, WorkloadSpec
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.model.wait import now
from linkflap.harness.rundir import Run, RunWriter
from linkflap.harness.workloads import KINDS, context, first_cluster, relay
from linkflap.harness.workloads.client import Client, Numbers, Tally
from linkflap.harness.workloads.clients import WorkloadClients, make, make_all
from linkflap.harness.workloads.crew import ClientNames, Crew, Readers, WorkloadProgress
from linkflap.harness.workloads.incarnation import (
    REFUSALS,
    Acks,
    Incarnation,
    InvokedOperation,
)
from linkflap.harness.workloads.prefork import Prefork
from linkflap.harness.workloads.producers import Producing, TransactionalClient
from linkflap.harness.workloads.protocol import ClientState
from linkflap.harness.workloads.readers import ReaderClient, fetched
from linkflap.harness.workloads.worker import Member
from linkflap.spark_verify.facts.sends_and_reads import (
    ARRAYS,
    NUMBERS,
    WORDS,
    Send,
    Sends,
    SendsBuilder,
)
from tests.oracles import random_runs
from tests.planted import clients
from tests.scenarios import scenario_of
from tests.synthetic import same
from tests.waiting import eventually

# Making workloads: options are checked before anything starts, names and numbers are unique,
# random draws are seeded.


def deployment(*, links: Mapping[str, str] | None = None, **clusters: str) -> Deployment:
    """Clusters and links by their bootstrap servers."""
    clusters_, links_ = (
        {name: SimpleNamespace(bootstrap=address) for name, address in of.items()}
        for of in (clusters, links or {})
    )
    return cast(Deployment, SimpleNamespace(clusters=clusters_, links=links_, recorders={}))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RunWriter]:
    topology = Topology(clusters=(ClusterSpec(name="A"),), links=())
    scenario = scenario_of(topology)
    run = Run.begun(scenario, "process")
    writer = RunWriter(tmp_path / "run", run)
    yield writer
    writer.close("finished")


ADDRESS = "127.0.0.1:1"
TOPICS = {"A.t": 3, "AB.t": 1, "B.t": 2}


def made(
    writer: RunWriter,
    kind: str,
    names: ClientNames | None = None,
    starts: str = "",
    **options: Option,
) -> Crew:
    return make(
        WorkloadSpec(kind=kind, home="A", clients=4, options=options, starts=starts),
        deployment=deployment(A=ADDRESS, B=ADDRESS, links={"*->A": "127.0.0.1:2"}),
        topics=TOPICS,
        writer=writer,
        seed=5,
        names=names or ClientNames(),
        forks=Prefork(),
    )


def hosted(
    writer: RunWriter, kind: str, name: str = "one", deaths: int = 0, **options: Option
) -> Client:
    """A client as its process creates it."""
    shared = context(
        WorkloadSpec(kind=kind, home="A", options=options),
        clusters={"A": "127.0.0.1:1", "B": "127.0.0.1:1"},
        links={"*->A": "127.0.0.1:2"},
        topics=TOPICS,
        writer=writer,
        seed=5,
        numbers=Numbers(writer.root / "numbers"),
        deaths=deaths,
    )
    return KINDS[kind].client(shared, name, first_cluster(shared))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_named_clients_for_its_home_only(writer: RunWriter, kind: str) -> None:
    names = ClientNames()
    crew, another = made(writer, kind, names), made(writer, kind, names)
    assert [[member.name for member in worker.members] for worker in crew.workers] == [
        [f"{kind}-1", f"{kind}-2", f"{kind}-3"],
        [f"{kind}-4"],
    ]
    assert [worker.name for worker in (*crew.workers, *another.workers)] == [
        f"clients-{n}" for n in range(1, 5)
    ]
    assert another.members[0].name == f"{kind}-5"
    assert set(crew.topics) == {"A.t"}
    assert crew.progress() == WorkloadProgress()


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("transactional", {"abort_share": 1.5}, "abort_share=1.5; give a number from 0 to 1"),
        ("transactional", {"records": "many"}, "records='many'; give a whole number from 1 to 10"),
        ("transactional", {"records": 2.5}, "records=2.5; give a whole number from 1 to 1000000"),
        ("transactional", {"rate": -1}, "rate=-1; give a number of 0 or more"),
        ("transactional", {"rate": 10**400}, "; give a number of 0 or more"),
        ("transactional", {"rate": float("inf")}, "rate=inf; give a number of 0 or more"),
        ("transactional", {"compression": "rar"}, "compression='rar'; give one of none"),
        ("transactional", {"colour": 1}, "colour=1; it knows abort_share"),
        ("idempotent", {"hold": 1}, "hold=1; it knows"),
        ("readers", {"assign": 1}, "assign=1; give true or false"),
        ("readers", {"isolation": "none"}, "isolation='none'; give one of read_committed"),
        ("readers", {"via": "tunnel"}, "via='tunnel'; give one of direct, proxy, wire"),
        ("zombie", {"rate": True}, "rate=True; give a number"),
        ("writers", {}, "there is no workload 'writers'; known: transactional"),
    ],
)
def test_wrong_options_are_named_with_their_fix(
    writer: RunWriter, kind: str, options: dict[str, Option], words: str
) -> None:
    with pytest.raises(InputError) as error:
        made(writer, kind, **cast(dict[str, Any], options))
    assert words in str(error.value)


def test_a_home_without_topics_and_no_clients_are_wrong(writer: RunWriter) -> None:
    for spec, words in (
        (WorkloadSpec(kind="idempotent", home="C"), "no topics of home C"),
        (WorkloadSpec(kind="idempotent", home="A", clients=0), "cannot have 0 clients"),
    ):
        with pytest.raises(InputError, match=words):
            make(
                spec,
                deployment=deployment(),
                topics={"A.t": 1},
                writer=writer,
                seed=1,
                names=ClientNames(),
                forks=Prefork(),
            )


def test_proxied_clients_use_the_path_of_ordinary_clients(writer: RunWriter) -> None:
    assert hosted(writer, "idempotent").context.bootstrap("A") == "127.0.0.1:1"
    assert hosted(writer, "idempotent", via="proxy").context.bootstrap("A") == "127.0.0.1:2"


def test_plans_come_from_the_seed_and_spread_every_record(writer: RunWriter) -> None:
    plans = [
        drawn(writer, name, deaths)
        for name, deaths in (("one", 0), ("one", 0), ("two", 0), ("one", 1))
    ]
    assert plans[0] == plans[1]
    assert plans[0] not in plans[2:], (
        "another client draws others, and so does who comes after a dead one"
    )
    for plan in plans[0]:
        assert sum(count for _, _, count in plan) == 7
        assert len({partition for _, partition, _ in plan}) == len(plan) == 3


def test_producers_take_a_topic_that_has_grown_in_once_their_own_metadata_have_it(
    writer: RunWriter,
) -> None:
    client, known = hosted(writer, "idempotent", records=4, partitions=4), {"A.t": 3}
    assert isinstance(client, Producing)
    client.incarnation = cast(Incarnation, SimpleNamespace(partitions=known.__getitem__))

    def used() -> set[int]:
        return {partition for _ in range(20) for _, partition, _ in client.plan()}

    client.grown("A.t", 5)
    client.grown("B.t", 9)
    assert used() == {0, 1, 2}
    known["A.t"] = 4
    assert used() == {0, 1, 2, 3}
    known["A.t"] = 7
    assert used() == {0, 1, 2, 3, 4}
    assert set(client.context.topics) == {"A.t"}


def drawn(writer: RunWriter, name: str, deaths: int) -> list[Sequence[tuple[str, int, int]]]:
    client = hosted(writer, "transactional", name, deaths, records=7, partitions=3)
    assert isinstance(client, TransactionalClient)
    return [client.plan() for _ in range(5)]


def test_a_tally_counts_operations_that_returned_after_a_time() -> None:
    tally = Tally()
    tally.acknowledge("A", 3)
    between = now()
    tally.acknowledge("A", 4)
    tally.acknowledge("B", 5)
    asked = ((0, "A"), (between, "A"), (0, "B"), (now(), "A"), (0, "C"))
    assert [tally.acknowledged_since(t, c) for t, c in asked] == [7, 4, 5, 0, 0]
    assert tally.acknowledged == 12


@pytest.mark.parametrize("kind", KINDS)
def test_clients_of_a_cluster_that_never_answers_stop_at_once(writer: RunWriter, kind: str) -> None:
    clients = WorkloadClients([made(writer, kind)], writer)
    clients.start()
    started = now()
    clients.stop()
    clients.stop()
    assert (now() - started) / 1e9 < 25
    assert clients.crashes == []
    assert clients.deaths() == []
    assert not [
        worker.name for crew in clients.workloads for worker in crew.workers if worker.alive
    ]


def test_producers_at_dead_clusters_alone_can_write_no_more(writer: RunWriter) -> None:
    both = WorkloadClients([made(writer, "readers"), made(writer, "transactional")], writer)
    assert both.can_write(["A", "B"])
    assert not both.can_write(["B"])
    assert not both.can_write([])
    assert WorkloadClients([made(writer, "readers")], writer).can_write([]), "nobody writes"


def test_workloads_that_were_never_started_can_be_stopped(writer: RunWriter) -> None:
    WorkloadClients([made(writer, "readers")], writer).stop()


def test_clients_start_with_the_fault_that_they_name(writer: RunWriter) -> None:
    crew = made(writer, "transactional", starts="in:cut")
    clients = WorkloadClients([crew], writer)
    clients.start()
    clients.start_in("flap")
    clients.pause("A")
    assert crew.look() == 0
    assert not any(member.state.alive for member in crew.members)
    clients.start_in("cut")
    eventually("begun", lambda: not crew.look() and all(m.state.alive for m in crew.members))
    eventually("paused", lambda: not crew.look() and all(m.state.settled for m in crew.members))
    clients.stop()


def test_every_group_is_known_whether_its_workload_names_it_or_not() -> None:
    specs = [
        WorkloadSpec(kind="readers", home="A"),
        WorkloadSpec(kind="readers", home="A", options={"isolation": "read_uncommitted"}),
        WorkloadSpec(kind="readers", home="A", options={"assign": True}),
        WorkloadSpec(kind="readers", home="B", options={"group": "mine"}),
        WorkloadSpec(kind="relay", home="A"),
        WorkloadSpec(kind="transactional", home="A"),
    ]
    assert workloads.groups(specs) == [
        "linkflap.A.read_committed",
        "linkflap.A.read_uncommitted",
        relay.GROUP,
        "mine",
    ]


# Acks, values and fetched runs: the rows of many records are exact in whatever order delivery
# reports arrive.


def message(offset: int, *, uid: int | None = None, partition: int = 0) -> Message:
    headers: list[tuple[str, str | bytes | None]] = (
        [] if uid is None else [(HEADER, encode(uid, 1, 0))]
    )
    return Message(topic="A.t", partition=partition, offset=offset, headers=headers)


def group(count: int, handed: int | None = None) -> Acks:
    acks = Acks("A.t", 0, 1000, count)
    acks.handed = count if handed is None else handed
    return acks


def test_a_gap_in_offsets_or_in_records_begins_a_run() -> None:
    acks = group(6)
    for index, offset in ((0, 10), (1, 11), (2, 20), (4, 22), (5, 23)):
        acks.delivered(index, None, message(offset))
    acks.delivered(3, KafkaError(KafkaError._PURGE_INFLIGHT), message(-1001))
    assert acks.outcome().acks == ((0, 2, 10), (2, 1, 20), (4, 2, 22))
    assert acks.outcome().refused == ()
    assert (acks.acked, acks.failed, acks.complete, acks.error) == (5, 1, False, "_PURGE_INFLIGHT")


def test_only_deterministic_refusals_are_certain() -> None:
    uncertain = (
        KafkaError._MSG_TIMED_OUT,
        KafkaError._PURGE_QUEUE,
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError._UNKNOWN_PARTITION,
    )
    assert not REFUSALS & {*uncertain}
    acks = group(len(uncertain) + 1)
    for index, code in enumerate(uncertain):
        acks.delivered(index, KafkaError(code), message(-1001))
    acks.delivered(len(uncertain), KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), message(-1001))
    assert acks.outcome().refused == ((len(uncertain), 1),)
    assert not acks.all_refused


def test_records_never_handed_over_are_refused() -> None:
    acks = group(5, handed=2)
    acks.delivered(0, None, message(3))
    acks.delivered(1, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), message(-1001))
    assert acks.outcome().refused == ((1, 4),)
    assert group(3, handed=0).all_refused


def test_persisted_without_an_offset_is_unknown() -> None:
    acks = group(1)
    acks.delivered(0, None, message(-1001))
    assert (acks.outcome().acks, acks.outcome().refused, acks.failed) == ((), (), 0)
    assert not acks.complete


@given(st.lists(st.integers(min_value=0, max_value=2), min_size=1, max_size=60), st.integers())
def test_any_order_of_reports_gives_the_same_group(fates: list[int], seed: int) -> None:
    """fate 0: acknowledged at the next offset, 1: certainly refused, 2: unknown."""
    offsets, at = {}, 100
    for index, fate in enumerate(fates):
        if fate == 0:
            offsets[index] = at
            at += 1
    order = list(range(len(fates)))
    random.Random(seed).shuffle(order)
    acks = group(len(fates))
    for index in order:
        code = {1: KafkaError.MSG_SIZE_TOO_LARGE, 2: KafkaError._MSG_TIMED_OUT}.get(fates[index])
        acks.delivered(
            index,
            KafkaError(code) if code is not None else None,
            message(offsets.get(index, -1001)),
        )
    outcome = acks.outcome()
    assert {i + n: o + n for i, k, o in outcome.acks for n in range(k)} == offsets
    assert [i + n for i, k in outcome.refused for n in range(k)] == [
        i for i, fate in enumerate(fates) if fate == 1
    ]


@pytest.mark.parametrize(("size", "count"), [(300, 500), (1_200_000, 20)])
def test_values_of_a_size_are_a_function_of_seed_and_uid(size: int, count: int) -> None:
    one, same, other = Values(1, size), Values(1, size), Values(2, size)
    uids = [(7 << 40) + n for n in range(count)]
    values = [one.value(u) or b"" for u in uids]
    assert values == [same.value(u) for u in uids]
    assert {len(value) for value in values} == {size}
    assert len({*values}) == count
    assert values[0] != other.value(uids[0])


def test_keys_are_as_many_as_asked_for() -> None:
    assert len({Values(1, 10).key((7 << 40) + n) for n in range(500)}) == KEYS
    assert len({Values(1, 10, keys=3).key(uid) for uid in range(10)}) == 3


def test_a_share_of_records_are_tombstones_whatever_their_values_would_be() -> None:
    plain, deleting = Values(1, 300), Values(1, 300, tombstones=0.25)
    uids = [(7 << 40) + n for n in range(2000)]
    gone = [u for u in uids if deleting.value(u) is None]
    assert 400 < len(gone) < 600
    assert all(deleting.value(u) == plain.value(u) for u in set(uids) - set(gone))
    assert all(plain.value(u) is not None for u in gone)


def test_skewed_keys_are_written_often_or_once() -> None:
    written = Counter(Values(1, 10, keys=2000, skew=4.0).key((7 << 40) + n) for n in range(5000))
    assert max(written.values()) > 100
    assert sum(count == 1 for count in written.values()) > 300


def test_polls_become_runs_of_uid_and_offset() -> None:
    messages = [
        message(5, uid=100),
        message(6, uid=101),
        message(0, uid=7, partition=1),
        message(8, uid=102),  # a control record took offset 7
        message(9, uid=200),
        message(10),
        message(11),
    ]
    assert fetched(messages) == {
        ("A.t", 0): ((100, 5, 2), (102, 8, 1), (200, 9, 1), (FOREIGN, 10, 1), (FOREIGN, 11, 1)),
        ("A.t", 1): ((7, 0, 1),),
    }
    assert uid_in(cast(list[tuple[str, bytes | None]], messages[0].headers())) == 100


# Sends as columns equal the sends that they were made from, whatever is selected.


def some(seed: int) -> list[Send]:
    """Every send of a small random run; those of a relay have inputs."""
    views, _ = random_runs.seen(seed, faithful=True)
    return [send for view in views for send in view.sends]


EVERY = [some(seed) for seed in (1, 2, 4)]
"""A failover twice, and relays; other seeds are copied logs, which have no sends."""


def test_the_runs_have_sends_and_inputs() -> None:
    assert all(EVERY)
    assert any(len(send.input_uids) for sends in EVERY for send in sends)


@pytest.mark.parametrize("sends", EVERY)
def test_sends_as_columns_return_the_same_rows(sends: list[Send]) -> None:
    columns = Sends.of(sends)
    assert len(columns) == len(sends)
    assert same(list(columns), sends)
    assert same(columns[-1], sends[-1])
    assert same(list(columns[1:4]), sends[1:4])
    assert Sends.of(columns) is columns


@pytest.mark.parametrize("sends", EVERY)
def test_a_selection_has_their_columns(sends: list[Send], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linkflap.spark_verify.facts.sends_and_reads._AT_ONCE", 3)
    rows = np.array(Random(5).sample(range(len(sends)), len(sends) // 2))
    chosen = [sends[row] for row in rows]
    for taken in (Sends.of(sends).take(rows), Sends.of(sends).take(rows).packed()):
        assert same(list(taken), chosen)
        assert taken.column("invoked").tolist() == [s.invoked for s in chosen]
        assert taken.sizes.tolist() == [len(s.offsets) for s in chosen]
        assert taken.each("offsets").tolist() == [
            offset for s in chosen for offset in s.offsets.tolist()
        ]
        assert taken.each("input_uids").tolist() == [
            uid for s in chosen for uid in s.input_uids.tolist()
        ]
        assert taken.words("cluster") == {s.cluster for s in chosen}
        assert taken.says("ending", "commit", "none").tolist() == [
            s.ending in ("commit", "none") for s in chosen
        ]


def test_no_sends_make_empty_columns() -> None:
    nothing = Sends.of([])
    assert len(nothing) == 0
    assert not list(nothing)
    assert nothing.words("cluster") == set()
    assert nothing.each("refused").tolist() == []
    assert nothing.says("cluster", "A").tolist() == []
    assert len(SendsBuilder().sends()) == 0


def test_parts_are_put_in_order() -> None:
    sends = some(4)
    gathering = SendsBuilder()
    for part in (sends[3:][::-1], [replace(s, client="another") for s in sends[:3]]):
        columns = Sends.of(part)
        for name in NUMBERS:
            gathering.numbers(name, columns.column(name))
        for name in WORDS:
            codes, words = columns.codes(name)
            gathering.words(name, words, codes)
        for name in ARRAYS:
            gathering.arrays(name, columns.each(name), columns.sizes_of(name))
    wanted = [*(replace(s, client="another") for s in sends[:3]), *sends[3:]]
    assert same(
        list(gathering.sends()), sorted(wanted, key=lambda s: (s.invoked, s.number, s.first_uid))
    )


# Readers: what they commit, how they are drained, and how many records they got.


class Rows:
    """The rows that the reader writes."""

    def __init__(self) -> None:
        self.written: list[object] = []

    def polls(self, name: str) -> Rows:
        return self

    def write(self, row: object) -> None:
        self.written.append(row)


class FixedNumbers:
    def next(self) -> int:
        return 1


@pytest.fixture
def refused() -> Iterator[str]:
    """An address without a listener, reserved for the block."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


def test_a_dead_cluster_is_asked_for_no_commit(refused: str) -> None:
    spec = WorkloadSpec(kind="readers", home="A", options={"group": "followers"})
    beside: dict[str, Any] = {
        "clusters": {"A": refused},
        "links": {},
        "topics": {"A.t": 1},
        "writer": Rows(),
        "seed": 1,
        "numbers": FixedNumbers(),
    }
    reader = ReaderClient(context(spec, **beside), "readers-1", "A")

    def stepped() -> bool:
        reader.step()
        return reader._down

    eventually("librdkafka to notice that no broker answers", stepped)
    reader.positions["A.t", 0] = 5
    reader._committed_at = 0
    reader.step()
    assert reader._committed_at > 0, "a commit was due"
    assert not reader._committing, "and none is pending"
    reader.leave(clean=False)


ENDS = {"A": {("A.t", 0): 5, ("A.t", 1): 7}}


class Process:
    """A process of one reader, as the harness has it: it answers questions, and is killed `deaths`
    times when it is asked to write that it is drained, before or after it has. Its reader holds
    `partitions`; after a death nothing at first, then what `then` says.
    """

    def __init__(
        self, name: str, *held: dict[int, int], deaths: int = 0, written: bool = False
    ) -> None:
        self.members = [Member(name=name, cluster="A")]
        self.held, self.deaths, self.written = list(held), deaths, written
        self.rows: list[list[int]] = []
        self.errors: list[str] = []
        self._asked, self._silent = 0, False
        self._drained: dict[tuple[str, int], int] = {}

    def look(self, **_: object) -> int:
        (member,) = self.members
        self._asked += 1
        if self._silent:
            self._silent = False
            return 0
        positions = tuple(("A.t", partition, at) for partition, at in self.held[0].items())
        drained = tuple((topic, partition, at) for (topic, partition), at in self._drained.items())
        state = ClientState(name=member.name, cluster="A", positions=positions, drained=drained)
        member.take_answer(state, self._asked)
        if len(self.held) > 1 and not self.deaths:
            del self.held[0]
        return 0

    def drained(self, member: Member, *, reached: Sequence[tuple[str, int]], missing: str) -> None:
        member.commanded = self._asked
        self.errors += [missing] if missing else []
        if self.deaths and not self.written:
            return self._die(member)
        kept = [tp for tp in reached if tp[1] in self.held[0]]
        self.rows += [[partition for _, partition in kept]] if kept else []
        self._drained.update({tp: self.held[0][tp[1]] for tp in kept})
        return self._die(member) if self.deaths else None

    def _die(self, member: Member) -> None:
        self.deaths -= 1
        self._asked += 1
        self._silent, self._drained = True, {}
        member.died(self._asked)


def readers(*processes: Process, group: str = "") -> Readers:
    beside: dict[str, Any] = {
        "clusters": {},
        "links": {},
        "topics": {"A.t": 2},
        "writer": Rows(),
        "seed": 1,
        "numbers": FixedNumbers(),
    }
    given: dict[str, Option] = {"group": group, "assign": not group}
    spec = WorkloadSpec(kind="readers", home="A", options=given)
    return Readers(spec, cast(Any, processes), context(spec, **beside))


def test_each_reader_records_once_that_it_is_drained() -> None:
    one, other = (
        Process("readers-1", {0: 1, 1: 7}, {0: 5, 1: 7}),
        Process("readers-2", {0: 5, 1: 7}),
    )
    readers(one, other).drain(ENDS, within=60)
    assert (one.rows, other.rows) == ([[0, 1]], [[0, 1]])
    assert one.errors == other.errors == []


@pytest.mark.parametrize("deaths", [1, 2])
def test_drain_waits_for_the_successor_of_a_reader_killed_before_its_row(deaths: int) -> None:
    one, other = (
        Process("readers-1", {0: 5, 1: 7}, deaths=deaths),
        Process("readers-2", {0: 5, 1: 7}),
    )
    readers(one, other).drain(ENDS, within=60)
    assert (one.rows, other.rows) == ([[0, 1]], [[0, 1]])


def test_reader_killed_after_an_unheard_row_writes_the_row_again() -> None:
    one = Process("readers-1", {0: 5, 1: 7}, deaths=1, written=True)
    readers(one).drain(ENDS, within=60)
    assert one.rows == [[0, 1], [0, 1]]


def test_one_member_of_a_group_writes_the_end_of_each_partition() -> None:
    one, other = (
        Process("readers-1", {0: 5}, {0: 5, 1: 7}, deaths=1),
        Process("readers-2", {1: 7}, {}),
    )
    readers(one, other, group="g").drain(ENDS, within=60)
    assert sorted(partition for row in [*one.rows, *other.rows] for partition in row) == [0, 1]


def test_an_end_not_reached_in_time_is_an_error_and_the_rest_is_written() -> None:
    one, other = Process("readers-1", {0: 5, 1: 3}), Process("readers-2", {0: 5, 1: 7})
    readers(one, other).drain(ENDS, within=0.1)
    assert one.errors == ["A.t-1 at 3 of 7"]
    assert (one.rows, other.rows, other.errors) == ([[0]], [[0, 1]], [])


def test_an_earlier_drain_does_not_count_for_later_ends() -> None:
    one = Process("readers-1", {0: 5, 1: 7})
    crew = readers(one)
    crew.drain(ENDS, within=60)
    one.held = [{0: 6, 1: 7}]
    crew.drain({"A": {("A.t", 0): 6, ("A.t", 1): 7}}, within=60)
    assert one.rows == [[0, 1], [0]]


def workload(home: str, *, read: int | None = None, acknowledged: int = 0) -> Any:
    return SimpleNamespace(
        spec=SimpleNamespace(home=home),
        started=True,
        read_on=lambda cluster: read if cluster == "A" else None,
        progress=lambda: SimpleNamespace(acknowledged=acknowledged),
    )


WRITTEN = workload("A", acknowledged=1)


@pytest.mark.parametrize(
    ("workloads", "given"),
    [
        ([WRITTEN], None),
        ([WRITTEN, workload("A", read=7), workload("A", read=500)], 7),
        # the group has not joined yet
        ([WRITTEN, workload("A", read=0), workload("A", read=500)], 0),
        # nobody writes C's topics
        ([WRITTEN, workload("A", read=500), workload("C", read=0)], 500),
        ([workload("A"), workload("A", read=0)], 0),  # nothing was written at all yet
    ],
)
def test_the_kind_of_readers_with_the_fewest_records_counts(
    workloads: list[Any], given: int | None
) -> None:
    assert WorkloadClients(workloads, cast(Any, None)).read_on("A") == given


def group_workload(kind: str, home: str, cluster: str, **options: str | bool) -> Any:
    return SimpleNamespace(
        spec=WorkloadSpec(kind=kind, home=home, options=options),
        started=True,
        members=[SimpleNamespace(state=SimpleNamespace(cluster=cluster))],
        progress=lambda: SimpleNamespace(acknowledged=0),
    )


def test_groups_that_are_to_commit_on_a_cluster_work_there_on_topics_that_have_a_writer() -> None:
    writer = group_workload("transactional", "A", "A")
    writer.progress = lambda: SimpleNamespace(acknowledged=1)
    every = [
        writer,
        group_workload("readers", "A", "A", group="here"),
        group_workload("readers", "A", "B", group="elsewhere"),
        group_workload("readers", "C", "A", group="unwritten"),
        group_workload("readers", "A", "A", assign=True),
        group_workload("relay", "A", "A", group="relays"),
    ]
    assert WorkloadClients(every, cast(Any, None)).groups_on("A") == {"here", "relays"}


# Planted bugs of clients: producers reach the state that `purged-is-acknowledged` needs.


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[tuple[int, int, int], ...]]:
    """With the bug; operations that return are collected instead of written."""
    rows: list[tuple[tuple[int, int, int], ...]] = []
    monkeypatch.setattr(Acks, "delivered", Acks.delivered)
    monkeypatch.setattr(
        Incarnation,
        "returned",
        lambda _, flight, *__: rows.append(next(g.outcome().acks for g in flight.groups)),
    )
    clients.plant("purged-is-acknowledged")
    return rows


def sent(first_uid: int, *, acknowledged: int, offset: int, outcome: str) -> None:
    """An operation of three records, of which the first few were acknowledged."""
    group = Acks("A.orders", 0, first_uid, 3)
    group.handed = 3
    for index in range(acknowledged):
        group.delivered(index, None, message(offset + index))
    flight = InvokedOperation(number=first_uid, kind="send", ending="none", groups=[group])
    Incarnation.returned(cast(Incarnation, SimpleNamespace()), flight, outcome, "")  # type: ignore[arg-type]


def test_unanswered_operation_is_taken_to_follow_the_last_acknowledged_offset(
    written: list[tuple[tuple[int, int, int], ...]],
) -> None:
    sent(0, acknowledged=3, offset=10, outcome="ok")
    sent(3, acknowledged=1, offset=13, outcome="info")
    sent(6, acknowledged=0, offset=0, outcome="info")
    assert written[0] == ((0, 3, 10),)
    assert written[1] == ((0, 1, 13), (1, 1, 14), (2, 1, 15))
    assert written[2] == ((0, 1, 14), (1, 1, 15), (2, 1, 16))


def test_planted_bug_changes_no_answered_operation(
    written: list[tuple[tuple[int, int, int], ...]],
) -> None:
    sent(0, acknowledged=0, offset=0, outcome="info")
    sent(3, acknowledged=2, offset=20, outcome="ok")
    assert written == [(), ((0, 2, 20),)]


def test_a_program_is_recorded_only_where_something_records(writer: RunWriter) -> None:
    spec = WorkloadSpec(
        kind="command", home="A", command=("true",), writes=("payments",), record="wire"
    )
    with pytest.raises(InputError, match="is of linkflap run"):
        make_all(
            [spec],
            deployment=deployment(A="a:1"),
            topics={"A.payments": 1},
            writer=writer,
            seed=1,
        )

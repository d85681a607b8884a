"""The effects of each generation of KIP-1279 on stock brokers and clients: produced on real
clusters, recorded, judged, and found by the checks."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from linkflap.chaos.default_workloads import default_workloads
from linkflap.chaos.scenarios import ScenarioRequest, scenario
from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.log.batches import scan
from linkflap.harness.mirrors import make_mirror
from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.mirror import ShadowMirror
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.model.history import Watermark
from linkflap.harness.model.protocols import Deployment, Mirror, Recorder
from linkflap.harness.model.scenario import FaultSpec, Minimums, MirrorSpec, Scenario, WorkloadSpec
from linkflap.harness.model.topology import LinkSpec, Topology
from linkflap.harness.model.verdict import CheckResult, Verdict
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunReader
from linkflap.harness.workloads import library, process, worker
from linkflap.harness.workloads.protocol import Channel, Command
from linkflap.recording import run as recording
from linkflap.report.progress import shown_on
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import verify
from linkflap.topologies import parse
from tests.shadows import drained

pytestmark = [pytest.mark.nightly, pytest.mark.spark]


# Runs that show the consequences of each generation of KIP-1279 on stock brokers, and what
# remains after them.


TOPIC = "A.orders"
PAIR = parse("A->B")
PLANNED = FaultSpec(id="failover", fault="failover-planned", target="A->B", at=5.0, duration=0.0)
READERS = tuple(w for w in default_workloads(PAIR, "A") if w.kind == "readers")
SELDOM = WorkloadSpec(
    kind="idempotent", home="A", clients=4, options={"rate": 0.5, "records": 2, "partitions": 2}
)
"""One record in each partition at a time: until the failover, a producer writes at most the five
batches whose metadata a broker keeps."""
FEW = Minimums(committed=0, aborted=0, reads=1, afterwards=20)
BEYOND = replace(FEW, afterwards=60)
"""Enough records that a client of `SELDOM` has more batches on B than it had on A, although the
first ones are not appended."""


def run_of(
    name: str,
    *workloads: WorkloadSpec,
    topology: Topology = PAIR,
    schedule: tuple[FaultSpec, ...] = (),
    duration: float = 8.0,
    minimums: Minimums = FEW,
    **options: str,
) -> Scenario:
    return Scenario(
        name=name,
        about="a consequence",
        seed=7,
        topology=topology,
        mirror=MirrorSpec(kind="shadow", options=options),
        workloads=workloads,
        schedule=schedule,
        minimums=minimums,
        duration=duration,
    )


def judged(
    scenarios: tuple[Scenario, ...], folder: Path, spark: SparkSession
) -> dict[str, Judgement]:
    with shown_on() as progress:
        folders = [
            recording.record(
                one,
                runtime="process",
                folder=folder / one.name,
                command="pytest",
                progress=progress,
            )
            for one in scenarios
        ]
    return {judgement.folder.name: judgement for judgement in verify(folders, spark=spark)}


class Seen:
    """A recorded run: its logs as they are on disk, operations, polls and samples."""

    def __init__(self, judgement: Judgement) -> None:
        self.judgement = judgement
        self._reader = RunReader(judgement.folder)

    def log(self, cluster: str, partition: int) -> Headers:
        """The batches of a cluster's first broker at the end, or at the failover that killed it."""
        for moment in reversed(self._reader.moments()):
            for bounds in self._reader.bounds(moment)[0]:
                if (bounds.cluster, bounds.topic, bounds.partition) == (cluster, TOPIC, partition):
                    return scan(self._reader.segments(moment, bounds)).headers
        raise AssertionError(f"no log of {cluster}")

    def batch(self, cluster: str, partition: int, offset: int) -> dict[str, int]:
        """The batch that contains an offset."""
        log = self.log(cluster, partition)
        (row,) = np.flatnonzero((log.base_offset <= offset) & (log.last_offset >= offset))
        return {name: getattr(log, name)[row].item() for name in log.__slots__}

    def promoted(self) -> dict[int, int]:
        return {
            e.partition: e.offset
            for e in cast(list[Any], self._reader.events()[0])
            if e.kind == "promotion"
        }

    def journal(self) -> list[dict[str, Any]]:
        """The shadow's report about each partition after the failover."""
        (rows,) = [
            e.row.data["partitions"] for e in self._reader.events()[0] if e.kind == "mirror-stopped"
        ]
        return [row for row in cast(list[dict[str, Any]], rows) if row["topic"] == TOPIC]

    def returned(self, cluster: str) -> dict[int, list[Any]]:
        """Operations that returned there, except init, by process."""
        found = defaultdict(list)
        for operation in sorted(self._reader.operations()[0], key=lambda o: o.time):
            if (
                operation.cluster == cluster
                and operation.phase == "return"
                and operation.kind != "init"
            ):
                found[operation.process].append(operation)
        return found

    def got(self, cluster: str, isolation: str, partition: int) -> set[int]:
        """Offsets that readers got."""
        return {
            offset
            for poll in self._reader.polls()[0]
            if (poll.cluster, poll.isolation, poll.kind) == (cluster, isolation, "poll")
            for fetched in poll.fetched
            if (fetched.topic, fetched.partition) == (TOPIC, partition)
            for _, first, count in fetched.runs
            for offset in range(first, first + count)
        }

    def last_sample(self, cluster: str, partition: int) -> Watermark:
        rows = [
            w
            for w in self._reader.watermarks()[0]
            if (w.cluster, w.topic, w.partition) == (cluster, TOPIC, partition)
        ]
        return max((w for w in rows if w.last_stable >= 0), key=lambda w: w.time)

    def of_kind(self, kind: str, cluster: str | None = None) -> list[Any]:
        return [
            a
            for a in self.judgement.anomalies
            if a.kind == kind and not a.allowed and cluster in (None, a.cluster)
        ]

    def kinds(self) -> set[str]:
        return {a.kind for a in self.judgement.anomalies if not a.allowed}

    def check(self, name: str) -> CheckResult:
        return next(c for c in self.judgement.checks if c.name == name)


def assert_lost_in_silence(seen: Seen) -> None:
    assert seen.judgement.verdict is Verdict.INVALID
    promoted = seen.promoted()
    ghosts: dict[int, set[int]] = defaultdict(set)
    for operations in seen.returned("B").values():
        for operation in operations:
            for send in operation.sends:
                ghosts[send.partition] |= {
                    at for _, count, first in send.acks for at in range(first, first + count)
                }
    ghosts = {
        number: {at for at in offsets if at < promoted[number]}
        for number, offsets in ghosts.items()
    }
    assert all(ghosts.values()), "B acknowledged in both partitions with offsets of A's records"
    for kind in ("ghost-ack", "lost-write"):
        found: dict[int, set[int]] = defaultdict(set)
        for anomaly in seen.of_kind(kind):
            assert anomaly.cluster == "B"
            found[anomaly.partition] |= set(
                range(anomaly.offset, anomaly.offset + anomaly.evidence["records"])
            )
        assert found == ghosts, kind
    for number, offsets in ghosts.items():
        for offset in offsets:
            assert seen.batch("B", number, offset)["crc"] == seen.batch("A", number, offset)["crc"]


OUT_OF_ORDER = re.compile(r"Out of order sequence number for producer (\d+) at offset")
CHAIN = parse("A->B->C")
FORCED = replace(PLANNED, fault="failover-forced", when="open-transactions")
OFTEN = WorkloadSpec(kind="idempotent", home="A", clients=2, options={"rate": 10.0})
TRANSACTIONS = WorkloadSpec(
    kind="transactional",
    home="A",
    clients=2,
    options={"rate": 10.0, "open_share": 0.1, "hold": 1.0},
)
RUNS = (
    run_of(
        "keep-seldom",
        SELDOM,
        *READERS,
        schedule=(PLANNED,),
        duration=10.0,
        minimums=BEYOND,
        producer_ids="keep",
    ),
    run_of("negate", *default_workloads(PAIR, "A"), duration=4.0, producer_ids="negate"),
    run_of("region", *default_workloads(PAIR, "A"), duration=4.0, producer_ids="region"),
    run_of("keep-often", OFTEN, *READERS, schedule=(PLANNED,), producer_ids="keep"),
    run_of("keep-transactions", TRANSACTIONS, *READERS, schedule=(FORCED,), producer_ids="keep"),
    run_of(
        "reset",
        SELDOM,
        *READERS,
        schedule=(PLANNED,),
        duration=10.0,
        minimums=BEYOND,
        producer_ids="reset",
    ),
    run_of(
        "chain-complement",
        *default_workloads(CHAIN, "A"),
        topology=CHAIN,
        duration=4.0,
        producer_ids="complement",
    ),
    run_of(
        "chain-negate",
        *default_workloads(CHAIN, "A"),
        topology=CHAIN,
        duration=4.0,
        producer_ids="negate",
    ),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> dict[str, Judgement]:
    return judged(RUNS, tmp_path_factory.mktemp("consequences"), spark)


def assert_blind(seen: Seen) -> None:
    """B's brokers take every batch for a plain one."""
    assert seen.judgement.verdict is Verdict.INVALID
    read = seen.of_kind("aborted-read")
    assert read
    for anomaly in read:
        batch = seen.batch("B", anomaly.partition, anomaly.offset)
        assert batch["transactional"]
        assert batch["producer_id"] < -1
        assert anomaly.cluster == "B"
        assert anomaly.offset in seen.got("B", "read_committed", anomaly.partition)
        assert anomaly.offset not in seen.got("A", "read_committed", anomaly.partition)
    passed = seen.of_kind("lso-mismatch")
    assert {a.cluster for a in passed} == {"B"}
    assert all(a.offset == a.evidence["last_stable"] for a in passed)
    # LSOs below the beginning of a transaction that had no marker yet.
    beyond = [a for a in passed if a.offset > a.evidence["recomputed"]]
    assert beyond
    for anomaly in beyond:
        assert seen.batch("B", anomaly.partition, anomaly.evidence["recomputed"])["transactional"]
    # A reader of B may also have been faster than a producer that had not requested its commit yet.
    assert seen.kinds() - {"uncommitted-read"} == {
        "aborted-read",
        "lso-mismatch",
        "mirrored-aborted",
    }
    assert seen.check("byte-equality").verdict is Verdict.VALID


def test_kept_ids_are_handed_out_again_and_first_records_are_acknowledged_and_lost(
    runs: dict[str, Judgement],
) -> None:
    """The broker takes them for repeats of the mirrored ones: Redpanda PR 31659, on a stock Apache
    broker."""
    seen = Seen(runs["keep-seldom"])
    assert_lost_in_silence(seen)
    promoted = seen.promoted()
    written = [
        a for a in seen.of_kind("producer-id-collision") if a.offset >= promoted[a.partition]
    ]
    assert written, "at least one client got beyond what was mirrored"
    for anomaly in written:
        batch = seen.batch("B", anomaly.partition, anomaly.offset)
        assert batch["producer_id"] == anomaly.evidence["producer_id"]
        assert batch["base_sequence"] > 0, "it goes on where the mirrored producer had ended"
    assert seen.kinds() == {
        "ghost-ack", "inconsistent-offset", "lost-write", "producer-id-collision", "sequence-start",
        "unseen-write",
    }  # fmt: skip


@pytest.mark.parametrize("ids", ["negate", "region"])
def test_negative_ids_make_brokers_blind_to_transactions(
    runs: dict[str, Judgement], ids: str
) -> None:
    assert_blind(Seen(runs[ids]))


def test_kept_ids_are_refused_where_the_mirrored_producer_had_written_more(
    runs: dict[str, Judgement],
) -> None:
    seen = Seen(runs["keep-often"])
    assert seen.judgement.verdict is Verdict.INVALID
    refused = {a.evidence["producer_id"]: a for a in seen.of_kind("producer-id-collision")}
    first = {process: operations[0] for process, operations in seen.returned("B").items()}
    turned_away = {o.producer_id: o for o in first.values() if o.error}
    server_log = (seen.judgement.folder / "logs" / "B" / "1" / "server.log").read_text()
    assert (
        turned_away.keys()
        == refused.keys()
        == {0, 1}
        == set(map(int, OUT_OF_ORDER.findall(server_log)))
    )
    for producer, operation in turned_away.items():
        # A client may give up before its library has been refused often enough.
        assert operation.error.startswith(
            ("OUT_OF_ORDER_SEQUENCE_NUMBER", "not acknowledged in time")
        )
        assert not any(send.acks for send in operation.sends)
        assert refused[producer].offset == -1, "nothing of it is in a log"
        at = refused[producer].evidence["mirrored_offset"]
        assert seen.batch("B", refused[producer].partition, at)["producer_id"] == producer
    assert seen.kinds() == {"producer-id-collision"}


def test_kept_ids_of_transactional_producers_are_refused_then_fenced_by_their_own_epochs(
    runs: dict[str, Judgement],
) -> None:
    """The first transaction is out of order; its abort raises the epoch, and with that epoch the id
    continues as if it were B's own."""
    seen = Seen(runs["keep-transactions"])
    assert seen.judgement.verdict is Verdict.INVALID
    first = {process: operations[0] for process, operations in seen.returned("B").items()}
    refused = [o for o in first.values() if "OUT_OF_ORDER_SEQUENCE_NUMBER" in o.error]
    assert {o.producer_id for o in refused} == {0, 1}
    assert not any(o.outcome == "ok" and o.ending == "commit" for o in refused)
    collisions = seen.of_kind("producer-id-collision")
    assert {a.evidence["producer_id"] for a in collisions} == {0, 1}
    promoted = seen.promoted()
    for anomaly in collisions:
        batch = seen.batch("B", anomaly.partition, anomaly.offset)
        assert anomaly.offset >= promoted[anomaly.partition]
        assert batch["producer_id"] == anomaly.evidence["producer_id"]
        assert batch["producer_epoch"] > 0 == batch["base_sequence"]
    assert seen.kinds() == {"producer-id-collision"}


def test_a_reset_record_resets_nothing_on_a_stock_broker(runs: dict[str, Judgement]) -> None:
    """It is on every partition where the KIP requires it, and what it should prevent happens after
    it all the same."""
    seen = Seen(runs["reset"])
    promoted = seen.promoted()
    for number, offset in promoted.items():
        batch = seen.batch("B", number, offset)
        assert (batch["control"], batch["producer_id"], batch["transactional"]) == (2, -1, False)
    assert {row["partition"]: row["appended"] for row in seen.journal()} == {
        n: [[at, "reset"]] for n, at in promoted.items()
    }
    assert_lost_in_silence(seen)
    # By the KIP's rule an id may return after a reset, from sequence 0. The broker that did not
    # obey continues.
    gone_on = {
        (number, at)
        for number, offset in promoted.items()
        for at in went_on_behind(seen.log("B", number), offset)
    }
    for kind in ("sequence-start", "producer-id-collision"):
        assert {(a.partition, a.offset) for a in seen.of_kind(kind, "B")} == gone_on, kind


def went_on_behind(log: Headers, promoted: int) -> set[int]:
    """Where mirrored ids continue above sequence 0 after a promotion: their first batch there."""
    mirrored = set(log.producer_id[(log.base_offset < promoted) & (log.producer_id >= 0)].tolist())
    found: dict[Any, Any] = {}
    for row in np.flatnonzero(
        (log.base_offset > promoted) & (log.producer_id >= 0) & (log.base_sequence >= 0)
    ).tolist():
        found.setdefault(
            int(log.producer_id[row]), (int(log.base_sequence[row]), int(log.base_offset[row]))
        )
    return {offset for pid, (first, offset) in found.items() if pid in mirrored and first > 0}


@pytest.mark.parametrize("ids", ["complement", "negate"])
def test_a_second_hop_gives_the_first_ids_back(runs: dict[str, Judgement], ids: str) -> None:
    """RS12: the two mappings cancel each other. Every hop is equal up to its transform, and both
    ends are equal without one."""
    seen = Seen(runs[f"chain-{ids}"])
    for number in range(2):
        a, b, c = (seen.log(cluster, number) for cluster in "ABC")
        end = min(len(log.base_offset) for log in (a, b, c))
        assert end > 10
        for name in ("base_offset", "length", "crc", "producer_id"):
            assert getattr(a, name)[:end].tolist() == getattr(c, name)[:end].tolist(), name
        own = a.producer_id[:end]
        assert (own >= 0).all()
        expected = -(own + 2) if ids == "negate" else np.iinfo(np.int64).max - own - 1
        assert b.producer_id[:end].tolist() == expected.tolist()
        assert (a.crc[:end] != b.crc[:end]).all()
    equality = seen.check("byte-equality")
    assert equality.verdict is Verdict.VALID
    assert min(equality.examined["B/mirrored"], equality.examined["C/mirrored"]) > 20
    if ids == "complement":
        assert seen.judgement.verdict is Verdict.VALID, seen.judgement.document["reason"]
    else:
        assert {a.cluster for a in seen.of_kind("aborted-read")} == {"B"}, "C's brokers see again"
        assert {a.cluster for a in seen.of_kind("lso-mismatch")} == {"B"}


# Producers of the destination that are older than the mirror: a jump of producer ids does not
# affect them.
OLDER = run_of("older", SELDOM, *READERS, schedule=(PLANNED,), duration=10.0, minimums=BEYOND)


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Judgement:
    """A run whose clients have had producers on B since before the mirror, as applications on both
    clusters have."""
    waiting: list[Standby] = []

    def make(
        spec: MirrorSpec, link: LinkSpec, deployment: Deployment, recorder: Recorder
    ) -> Mirror:
        mirror = cast(Any, make_mirror(spec, link, deployment, recorder))
        start = mirror.start

        def start_later() -> None:
            waiting.extend(
                Standby(deployment.clusters["B"].bootstrap) for _ in range(SELDOM.clients)
            )
            start()

        mirror.start = start_later
        return cast(Mirror, mirror)

    def taken_over(config: dict[str, Any]) -> Producer:
        chosen = next(
            (one for one in waiting if one.bootstrap == config["bootstrap.servers"]), None
        )
        if chosen is None:
            return Producer(config)
        waiting.remove(chosen)
        chosen.hears = config["stats_cb"]
        return chosen.producer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "make_mirror", make)
        patch.setattr(library, "Producer", taken_over)
        patch.setattr(worker, "spawn", in_thread)
        return judged((OLDER,), tmp_path_factory.mktemp("consequences-older"), spark)[OLDER.name]


class InThread:
    """A stand-in for a client process, for clients that have to be in this one."""

    def __init__(self, end: socket.socket) -> None:
        self.pid = 0
        self._thread = threading.Thread(
            target=process.serve, args=(Channel(end, Command),), daemon=True
        )
        self._thread.start()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def poll(self) -> int | None:
        return None if self.alive else 0

    def kill(self) -> None: ...


def in_thread(name: str, end: socket.socket, *, folder: Path, log: Path) -> InThread:
    return InThread(end.dup())


class Standby:
    """A producer that has had its id for long; its new owner gets its reports."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap, answers = bootstrap, cast(list[str], [])
        self.hears = answers.append
        config = library.producer_config(bootstrap, "", timeout=10.0, compression="none")
        own = {
            "statistics.interval.ms": cast(Any, library).STATISTICS_MS,
            "logger": cast(Any, library).QUIET,
        }
        self.producer = Producer({**config, **own, "stats_cb": lambda text: self.hears(text)})

        def known() -> bool:
            self.producer.poll(0.1)
            return (
                bool(answers) and json.loads(answers[-1]).get("eos", {}).get("producer_id", -1) >= 0
            )

        until(known, within=60, what="a producer to have its id")


def test_a_jump_does_not_reach_producers_of_the_destination_that_are_older_than_the_mirror(
    older: Judgement,
) -> None:
    """Their ids were allocated before the jump: their first records are acknowledged and lost."""
    seen = Seen(older)
    assert_lost_in_silence(seen)
    assert {"ghost-ack", "lost-write", "producer-id-collision"} <= seen.kinds()
    for anomaly in seen.of_kind("producer-id-collision"):
        assert anomaly.evidence["producer_id"] in range(SELDOM.clients)


# Transactions that are open at a failover, and what each rule leaves of them on stock brokers.
#
# Runs of real clusters go the whole way: recorded, then judged.
RULES = (
    replace(
        scenario(
            "failover-open-transactions",
            ScenarioRequest(seed=7, mirror_options={"open_transactions": "truncate-once"}),
        ),
        name="truncate-once",
    ),
    scenario(
        "failover-open-transactions",
        ScenarioRequest(seed=7, mirror_options={"open_transactions": "write-txn-markers"}),
    ),
)


@pytest.fixture(scope="module")
def failed_over(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> dict[str, Judgement]:
    return judged(RULES, tmp_path_factory.mktemp("open-transactions"), spark)


def test_a_truncation_to_the_last_stable_offset_leaves_transactions_that_nobody_can_end(
    failed_over: dict[str, Judgement],
) -> None:
    seen = Seen(failed_over["truncate-once"])
    assert seen.judgement.verdict is Verdict.INVALID
    truncations = {row["partition"]: row["truncated"] for row in seen.journal()}
    assert {n: steps[-1][1] for n, steps in truncations.items()} == seen.promoted()
    hanging = seen.of_kind("hanging-transaction")
    assert hanging
    for anomaly in hanging:
        number, at = anomaly.partition, anomaly.offset
        there, here = seen.log("A", number), seen.log("B", number)
        producer = seen.batch("B", number, at)["producer_id"]
        ended = (there.producer_id == producer) & (there.control >= 0) & (there.base_offset > at)
        assert there.base_offset[ended][0] >= seen.promoted()[number], (
            "A has its marker, behind the truncation"
        )
        assert not (
            (here.producer_id == producer) & (here.control >= 0) & (here.base_offset > at)
        ).any()
        last = seen.last_sample("B", number)
        assert last.last_stable <= at < last.high_watermark, "the LSO stands still for ever"
    assert {"high-watermark-regression"} <= seen.kinds()


def test_markers_of_the_new_leaders_are_accounted_for(failed_over: dict[str, Judgement]) -> None:
    seen = Seen(failed_over["failover-open-transactions"])
    assert seen.judgement.verdict is Verdict.VALID, seen.judgement.document["reason"]
    rows = seen.journal()
    assert sum(len(row["appended"]) for row in rows) > 1
    for row in rows:
        assert row["promoted"] == row["mirrored"] == seen.promoted()[row["partition"]]
        for offset, _ in row["appended"]:
            assert offset >= row["promoted"]
            assert seen.batch("B", row["partition"], offset)["control"] == 0


# A shadow that stops copying because brokers silently skip the batches that it serves.
STALLED = run_of("stalled", *default_workloads(PAIR, "A"), duration=4.0)


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Judgement, str]:
    """A run whose shadow stamps leader epochs that its partitions do not have."""

    def make(*given: Any) -> Mirror:
        mirror = cast(Any, make_mirror(*given))
        start = mirror.start

        def start_and_stall() -> None:
            start()
            stall(mirror, TOPIC, 2)

        mirror.start = start_and_stall
        return cast(Mirror, mirror)

    folder = tmp_path_factory.mktemp("consequences-stalled") / STALLED.name
    with pytest.MonkeyPatch.context() as patch, shown_on() as progress:
        patch.setattr(recording, "make_mirror", make)
        with pytest.raises(EnvironmentFailure) as raised:
            recording.record(
                STALLED, runtime="process", folder=folder, command="pytest", progress=progress
            )
    return verify([folder], spark=spark)[0], str(raised.value)


def stall(
    mirror: ShadowMirror, topic: str, partitions: int, *, at: int = 40, ahead: int = 6
) -> None:
    """Makes the shadow serve batches from offset `at` on with a leader epoch that their partitions
    do not have yet."""
    drained(mirror)
    mirror.crash()
    journal = Journal(mirror.log.parent)
    for number in range(partitions):
        note = journal.partition(topic, number)
        note.epochs = [
            *note.epochs,
            (max((epoch for epoch, _ in note.epochs), default=0) + ahead, at),
        ]
    journal.save()
    mirror.restart()


def test_a_mirror_that_stands_still_is_not_called_valid(stalled: tuple[Judgement, str]) -> None:
    """Brokers silently skip batches of a leader epoch above the partition's (KAFKA-18723)."""
    judgement, message = stalled
    assert "the failover does not get past the phase settling" in message
    assert judgement.verdict is Verdict.UNKNOWN
    assert message in cast(str, judgement.document["reason"])

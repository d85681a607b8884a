"""Cases: what each declares, how its runs decide, and what its steps share."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
import track_record_page

from linkflap.chaos.cases import bench, case_named, registry, results
from linkflap.chaos.cases.bench import Bench, Client, TransactionProtocol, Variant
from linkflap.chaos.cases.case import (
    CLAIMS,
    Case,
    Expected,
    Observation,
    Outcome,
    interval,
    number,
    words,
)
from linkflap.chaos.cases.cluster_mirroring.outages import connections
from linkflap.chaos.cases.cluster_mirroring.transactions import _ids
from linkflap.chaos.cases.kafka import replication
from linkflap.chaos.cases.mirror_maker import committed, syncs
from linkflap.chaos.cases.runner import Benches, CaseResult, check, run_case
from linkflap.chaos.cases.wire import ProducerIdentity, record_batch
from linkflap.cli.case import _MATRIX, _worst, benches_in
from linkflap.harness.jvm import failure
from linkflap.harness.log import reference
from linkflap.harness.machine import ledger
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.topology import ClusterSpec, ServiceSpec
from linkflap.harness.runtimes.distribution import kafka as kafkas
from linkflap.harness.runtimes.distribution import pin
from linkflap.suite.folder import shard
from tests.kafka_log import ABORT, COMMIT, Plain, marker, record, segment
from tests.kafka_log import batch as written
from tests.unit.case_results import ROOT, a_case, a_result, invoked


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (a_result("4.3.1", shown=1), 0),
        (a_result("4.3.1", shown=0), 1),
        (a_result("4.3.1", shown=0, runs=2), 2),
        (a_result("4.2.0", shown=1), 1),
        (a_result("4.2.0", shown=1, runs=1), 1),
        (a_result("4.2.0", shown=0), 0),
        (a_result("4.2.0", shown=0, runs=2), 2),
        (a_result("4.3.1", shown=1, expected=None), 2),
        (a_result("4.3.1", outcome=Outcome.NEEDS, why="a build"), 2),
        (a_result("4.3.1", shown=1, outcome=Outcome.UNKNOWN, why="the control showed it"), 2),
    ],
)
def test_the_exit_code_says_whether_the_result_is_the_expected_one(
    result: CaseResult, code: int
) -> None:
    assert result.exit_code == code


def test_the_worst_of_several_releases() -> None:
    fine, wrong, unknown = (
        a_result("4.2.0").exit_code,
        a_result("4.3.1").exit_code,
        a_result("4.2.0", runs=1).exit_code,
    )
    assert _worst([fine]) == 0
    assert _worst([fine, unknown]) == 2
    assert _worst([fine, unknown, wrong]) == 1


def test_expectations_by_release_client_and_protocol() -> None:
    each = a_case(
        expected=(
            Expected(shows=False, since="4.0.0", clients=("java",), transactions="V2"),
            Expected(shows=True, since="3.7.0", until="4.3.1"),
        )
    )
    later, earlier = each.expected
    assert each.expectation(Variant(client="java", transactions="V2"), "4.1.0") is later
    assert each.expectation(Variant(client="java", transactions="V1"), "4.1.0") is earlier
    assert each.expectation(Variant(), "4.3.1") is earlier
    assert each.expectation(Variant(), "4.4.0") is None
    assert each.expectation(Variant(), "unknown") is None
    assert (
        each.expected[0].words == "4.0.0 and later, java, transactions V2: does not show (reading)"
    )


@pytest.mark.parametrize("wrong", ["4.3", "latest", "", "4.3.x"])
def test_text_that_is_no_release_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match=r"is no release; write one as 4\.3\.1"):
        number(wrong)


def test_guarantees_by_client_and_protocol(tmp_path: Path) -> None:
    each = a_case(
        name="KIP-360-x",
        kind="guarantee",
        clients=("librdkafka", "java"),
        protocols=("", "V1"),
        expected=(Expected(shows=False),),
    )
    played: tuple[tuple[str, Client, TransactionProtocol, int, int], ...] = (
        ("3.9.2", "librdkafka", "", 3, 0),
        ("4.3.1", "librdkafka", "V1", 4, 0),
        ("4.3.1", "librdkafka", "", 2, 0),
        ("4.3.1", "java", "", 3, 1),
    )
    for version, client, transactions, runs, shown in played:
        variant = Variant(kafka=version, client=client, transactions=transactions)
        result = a_result(
            version,
            case="KIP-360-x",
            variant=variant,
            runs=runs,
            shown=shown,
            expected=each.expected[0],
        )
        results.store(tmp_path, results.row(each, result))
    page = track_record_page.render(results.load(tmp_path), {each.name: each, "a-case": a_case()})
    assert "| 360 | `KIP-360-x` |  |  | 0 of 7 | *open* | *open* | **1 of 3** |" in page
    assert "`a-case` |" not in page


@pytest.mark.parametrize(
    "kip", ["98", "360", "447", "545", "618", "848", "890", "932", "966", "1228"]
)
def test_every_kip_that_clients_rely_on_has_a_case(kip: str) -> None:
    assert [case.name for case in registry().values() if track_record_page.relied_on(case) == kip]


def test_the_release_that_decides_and_where_it_is_missed(tmp_path: Path) -> None:
    each = a_case(runs=3)
    for version, shown, runs in (
        ("4.3.1", 3, 3),
        ("4.3.0", 1, 1),
        ("4.2.0", 0, 3),
        ("3.9.2", 0, 2),
    ):
        results.store(tmp_path, results.row(each, a_result(version, shown, runs)))
    page = track_record_page.render(results.load(tmp_path), {"a-case": each})
    assert "| `a-case` | 4.3.0, 4.3.1 | 4.2.0 |" in page, "two runs are no answer"
    assert "A NOT REPRODUCED takes 3 runs." in page
    assert "It did not show where" not in page, "it did not show where it should not"
    results.store(tmp_path, results.row(each, a_result("4.4.0", 0, 3)))
    page = track_record_page.render(
        results.load(tmp_path), {"a-case": replace(each, tried="three times, and nothing")}
    )
    assert "It did not show where it should. What was tried: three times, and nothing.\n" in page


@pytest.mark.parametrize("name", registry())
def test_every_case_says_all_that_a_reader_needs(name: str) -> None:
    each = registry()[name]
    for text in (
        each.title,
        each.claim,
        each.schedule,
        each.reproduced,
        each.control,
        each.refuted,
        *each.sources,
    ):
        assert len(text) > 5
    assert each.sources
    assert each.expected, "where it should show, and where not"
    assert each.runs >= 1
    assert each.clients
    assert not each.title.endswith(".")
    assert (each.kind == "guarantee") == (not any(one.shows for one in each.expected))
    if each.kind == "guarantee":
        assert each.control_shows, "the control proves that the anomaly can be seen"
    kafkas.pinned(each.oldest)


def test_every_claim_has_steps() -> None:
    """And every case its claim, or it could not be registered."""
    assert sorted(path.stem for path in CLAIMS.glob("*")) == sorted(registry())


def test_names_are_found_whatever_their_capitals_and_the_nearest_are_named() -> None:
    assert case_named("kafka-20734").name == "KAFKA-20734"
    with pytest.raises(
        InputError, match=r"there is no case 'KAFKA-2073'; the nearest are .*KAFKA-20734"
    ):
        case_named("KAFKA-2073")
    with pytest.raises(InputError, match="linkflap case list shows all"):
        case_named("§")


def test_variants_that_a_case_is_not_played_with() -> None:
    each = a_case()
    with pytest.raises(InputError, match="a-case is not played by java; it is by librdkafka"):
        check(each, Variant(client="java"))
    with pytest.raises(
        InputError,
        match=r"not played with transactions V1; it is with what the release starts with alone",
    ):
        check(each, Variant(transactions="V1"))
    with pytest.raises(InputError, match=r"no list of jars is kept for Kafka '4\.3\.99'"):
        check(each, Variant(kafka="4.3.99"))


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", ""])
def test_text_that_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"is not of the form K/N"):
        shard(text)


def test_transactions_v2_is_what_kafka_4_starts_with(tmp_path: Path) -> None:
    each = case_named("KAFKA-20734")
    results.store(tmp_path, results.row(each, a_result("4.2.0", 0, 3, case=each.name)))
    done = invoked(
        "matrix", each.name, "--transactions", "V2", "--kafka", "4.2.0", "--store", str(tmp_path)
    )
    assert done.return_value == 0
    assert "stored already" in done.stderr, "the result without --transactions is the one of V2"


def test_the_folder_of_the_brokers_goes_also_when_the_process_is_killed() -> None:
    with benches_in(None):
        (folder,) = (Path(one) for one in ledger.own().folders if "linkflap-case-" in one)
        assert folder.is_dir(), "the watchdog removes what is in the ledger"
    assert not folder.exists()
    assert str(folder) not in ledger.own().folders


@pytest.mark.parametrize(
    ("case", "kafka", "needs"),
    [
        (a_case(oldest="4.2.0"), "3.9.2", "Kafka 4.2.0 or later"),
        (
            case_named("KIP-1279-dead-source"),
            "4.3.1",
            "a build of the KIP-1279 branch (--kafka DIRECTORY)",
        ),
        (
            case_named("KIP-1163-repeat"),
            "4.3.1",
            "a build that knows diskless.storage.system.enable, diskless.enable (--kafka "
            "DIRECTORY)",
        ),
    ],
    ids=["a later release", "a build", "a build with diskless topics"],
)
def test_a_case_is_not_started_on_a_kafka_that_lacks_what_it_needs(
    tmp_path: Path, case: Case, kafka: str, needs: str
) -> None:
    with Benches(tmp_path / "runs") as benches:
        result = run_case(case, Variant(kafka=kafka, client=case.clients[0]), benches=benches)
    assert (result.outcome, result.why, result.exit_code) == (Outcome.NEEDS, needs, 2)
    assert result.words == f"NEEDS: {needs}"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("KIP-1279-dead-source", "{} has no Cluster Mirroring; name the jars of a build"),
        ("KIP-1279-verbs", "{} has no Cluster Mirroring; name the jars of a build"),
        ("KIP-1163-repeat", "{} does not know diskless.storage.system.enable, diskless.enable"),
        ("KIP-1163-read-later", "{} does not know diskless.storage.system.enable, inkless.consume"),
    ],
)
def test_a_case_that_needs_a_build_is_not_started_with_jars_that_lack_it(
    tmp_path: Path, name: str, lacks: str
) -> None:
    with zipfile.ZipFile(tmp_path / "kafka-clients-4.3.1.jar", "w") as jar:
        jar.writestr("kafka/kafka-version.properties", "version=4.3.1\n")
    variant = Variant(kafka=str(tmp_path), client=case_named(name).clients[0])
    with Benches(tmp_path / "runs") as benches:
        result = run_case(case_named(name), variant, benches=benches)
    assert (result.outcome, result.exit_code) == (Outcome.NEEDS, 2)
    assert lacks.format(tmp_path) in result.why
    assert not (tmp_path / "runs").exists()


def test_a_case_whose_brokers_share_services_needs_a_file_that_names_them(tmp_path: Path) -> None:
    case = case_named("KIP-1163-repeat-elsewhere")
    store = ServiceSpec(command=("store", "{port}"), protocol="http", folder="/")
    theirs = ClusterSpec(
        name="B", brokers=1, config={"broker.rack": "{store}"}, services={"store": store}
    )
    for like, lacks in ((None, True), (replace(theirs, services={}), True), (theirs, False)):
        with Benches(tmp_path / "runs", like=like) as benches:
            assert ("--like FILE" in benches.lack(case)) is lacks
    (cluster,) = case.on("4.3.1", theirs).clusters
    assert (cluster.name, cluster.brokers, cluster.kafka) == ("A", 3, "4.3.1")
    assert cluster.config == {"broker.rack": "{store}", "diskless.storage.system.enable": "true"}
    assert cluster.services == {"store": store}


def test_list_of_maven_is_read_as_coordinates() -> None:
    text = (
        "\nThe following files have been resolved:\n   "
        "org.apache.kafka:kafka-clients:jar:3.7.1:runtime\n   "
        "io.netty:netty-transport:jar:linux-x86_64:4.1.0:compile -- module io.netty\n   "
        "a:b:pom:1:compile\n"
    )
    assert pin.listed(text) == [
        "org.apache.kafka:kafka-clients:3.7.1",
        "io.netty:netty-transport:4.1.0:linux-x86_64",
    ]
    assert "reload4j" in pin.pom("3.7.1")
    assert "log4j-slf4j-impl" in pin.pom("4.3.1")


def test_releases_from_3_7_on_have_lists() -> None:
    every = (
        "3.7.0 3.7.1 3.7.2 3.8.0 3.8.1 3.9.0 3.9.1 3.9.2 4.0.0 4.0.1 4.0.2 4.1.0 4.1.1 4.1.2 4.2.0 "
        "4.2.1 4.3.0 4.3.1 4.4.0"
    )
    assert set(every.split()) <= set(kafkas.released())


def test_the_matrix_is_of_releases_that_have_lists() -> None:
    assert set(_MATRIX) <= set(kafkas.released())


def test_the_catalogue_in_the_docs_names_cases_that_there_are() -> None:
    text = (ROOT / "docs" / "cases.md").read_text()
    catalogue = text[text.index("## The catalogue") : text.index("## What did not show")]
    named = {name for name in re.findall(r"`([\w.-]+)`", catalogue) if "-" in name}
    assert named <= registry().keys(), sorted(named - registry().keys())
    assert registry().keys() <= named, sorted(registry().keys() - named)


def test_a_result_without_runs_says_why() -> None:
    assert (
        a_result(runs=0, outcome=Outcome.UNKNOWN, why="no run came to its end: x").words
        == "UNKNOWN: no run came to its end: x"
    )
    assert replace(a_result(shown=3), shown=3).words == "REPRODUCED 3 of 3 (44 to 100 %)"


class NoBenches:
    """Deployments without clusters: what the runner does with steps that show it, do not show it,
    or fail."""

    def __init__(self) -> None:
        self.stamp, self.dropped, self.ended = "1-a-case", 0, 0

    def lack(self, case: Case) -> str:
        return ""

    def prepare(self, variant: Variant) -> None:
        pass

    def bench(self, case: Case, variant: Variant) -> NoBenches:
        return self

    def drop(self) -> None:
        self.dropped += 1

    def begin(self, stamp: str) -> None:
        pass

    def end(self) -> None:
        self.ended += 1

    def settle(self) -> None:
        pass


def steps(*shown: bool | None) -> Callable[[Bench], Observation]:
    """Steps whose runs show it or not, in this order; None: the step fails."""
    turns = iter(shown)

    def play(bench: Bench) -> Observation:
        seen = next(turns)
        if seen is None:
            raise DeadlineExceeded("waited 60 s for a leader")
        return Observation(shown=seen, facts={"shown": seen})

    return play


def test_control_and_claim_by_turns() -> None:
    benches = NoBenches()
    case = a_case(play=steps(False, True, True), play_control=steps(False, False, False))
    result = run_case(case, Variant(kafka="4.3.1"), benches=cast(Benches, benches))
    assert (result.outcome, result.shown, result.runs, result.controls) == (
        Outcome.REPRODUCED,
        2,
        3,
        3,
    )
    assert result.facts == {"shown": True}, "of the first run that showed it"
    assert (result.exit_code, benches.dropped) == (0, 0)


def test_a_control_that_shows_it_makes_the_result_unknown() -> None:
    case = a_case(play=steps(True, True, True), play_control=steps(False, True, False))
    result = run_case(case, Variant(kafka="4.3.1"), benches=cast(Benches, NoBenches()))
    assert result.words == "UNKNOWN: the control showed it in 1 of 3 runs"
    assert (result.exit_code, result.controls) == (2, 2)


def test_a_guarantee_whose_control_does_not_show_the_anomaly_is_unknown() -> None:
    case = a_case(
        play=steps(False),
        play_control=steps(False),
        control_shows=True,
        expected=(Expected(shows=False),),
    )
    result = run_case(case, Variant(kafka="4.3.1"), count=1, benches=cast(Benches, NoBenches()))
    assert result.words == "UNKNOWN: the control did not show it in 1 of 1 runs"


def test_a_run_that_failed_counts_for_nothing_and_gets_new_clusters() -> None:
    benches = NoBenches()
    case = a_case(
        play=steps(None, False, False, False), play_control=steps(False, False, False, False)
    )
    reported: list[str] = []
    result = run_case(
        case, Variant(kafka="4.2.0"), benches=cast(Benches, benches), report=reported.append
    )
    assert (result.outcome, result.shown, result.runs, result.exit_code) == (
        Outcome.NOT_REPRODUCED,
        0,
        3,
        0,
    )
    assert result.failures == ("run 1: DeadlineExceeded: waited 60 s for a leader",)
    assert benches.dropped == 1
    assert reported[0] == result.failures[0]


def test_a_machine_without_a_java_is_said_once_and_is_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(version: str) -> None:
        raise SetupError(f"no Java was found for Kafka {version}; install Java 17 or 21")

    monkeypatch.setattr("linkflap.chaos.cases.runner.java_for", none)
    monkeypatch.setattr(kafkas, "kafka", lambda kafka: SimpleNamespace(version=kafka))
    with (
        Benches(tmp_path / "runs") as benches,
        pytest.raises(SetupError, match=r"for Kafka 4\.3\.1; install"),
    ):
        run_case(a_case(), Variant(kafka="4.3.1"), benches=benches)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("answer", "needed"), [("invalid_topic_exception", True), ("none", False)])
def test_a_case_of_transactions_needs_topics_that_take_them(answer: str, needed: bool) -> None:
    class Writing(NoBenches):
        topic_settings: ClassVar = {"diskless.enable": "true"}

        def topic(self, base: str) -> str:
            return base

        def wire_transactional(self, base: str) -> SimpleNamespace:
            return SimpleNamespace(add=lambda tp: answer, end=lambda commit: "none")

    case = a_case(play=steps(True), play_control=steps(False), transactions=True)
    result = run_case(case, Variant(kafka="4.3.1"), count=1, benches=cast(Benches, Writing()))
    assert (result.outcome is Outcome.NEEDS, result.runs) == (needed, int(not needed))
    assert not needed or result.words == (
        "NEEDS: a build whose topics with diskless.enable=true take transactions; this one answers "
        "AddPartitionsToTxn with invalid_topic_exception"
    )


def test_three_failures_in_a_row_end_the_case() -> None:
    case = a_case(play=steps(None, None, None), play_control=steps(False, False, False))
    result = run_case(case, Variant(kafka="4.3.1"), benches=cast(Benches, NoBenches()))
    assert (
        result.words
        == "UNKNOWN: no run came to its end: run 1: DeadlineExceeded: waited 60 s for a leader"
    )
    assert (result.exit_code, len(result.failures)) == (2, 3)


def test_a_mirrored_case_gets_clusters_of_its_own_for_control_and_claim() -> None:
    benches = NoBenches()
    case = a_case(play=steps(True), play_control=steps(False), apart=True)
    assert (
        run_case(case, Variant(kafka="4.3.1"), count=1, benches=cast(Benches, benches)).shown == 1
    )
    assert benches.dropped == 2


def test_an_error_in_a_case_itself_is_not_reported_as_a_failed_run() -> None:
    def broken(bench: Bench) -> Observation:
        raise InputError("there is no such mirror")

    with pytest.raises(InputError, match="there is no such mirror"):
        run_case(
            a_case(play=steps(True), play_control=broken),
            Variant(kafka="4.3.1"),
            benches=cast(Benches, NoBenches()),
        )


@pytest.mark.parametrize(
    ("shown", "runs", "low", "high"),
    [
        (0, 0, 0.0, 1.0),
        (0, 30, 0.0, 0.1135),
        (30, 30, 0.8865, 1.0),
        (5, 10, 0.2366, 0.7634),
        (1, 1, 0.2065, 1.0),
    ],
)
def test_the_interval_of_a_share_is_wilsons(shown: int, runs: int, low: float, high: float) -> None:
    found = interval(shown, runs)
    assert found == pytest.approx((low, high), abs=5e-5)
    assert found[0] <= (shown / runs if runs else 0.5) <= found[1]


def test_an_interval_of_more_than_there_were_is_refused() -> None:
    with pytest.raises(ValueError, match="4 of 3"):
        interval(4, 3)
    assert words(3, 3) == "3 of 3 (44 to 100 %)"


# What the steps of cases share, without a broker: batches as clients send them, markers in
# logs, formulas.


@pytest.mark.parametrize("size", [0, 1, 63, 64, 300, 20_000])
def test_a_batch_as_a_client_sends_it(size: int) -> None:
    values = [b"v" * size, b"", b"last"]
    data = record_batch(
        values, producer=ProducerIdentity(id=7, epoch=3), sequence=11, transactional=True
    )
    (batch,) = reference.batches(data)
    assert batch.crc_ok
    assert (batch.base_offset, batch.last_offset, batch.count) == (0, 2, 3)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 11)
    assert batch.transactional
    assert not batch.is_control
    assert [(one.offset, one.key, one.value) for one in reference.records(batch)] == [
        (n, None, v) for n, v in enumerate(values)
    ]


def test_the_order_of_registration_election_and_unfencing_in_the_log_of_the_controllers() -> None:
    topic, other = b"T" * 16, b"O" * 16

    def a_record(kind: int, body: bytes) -> bytes:
        return bytes([1, kind, 0]) + body

    def number(value: int) -> bytes:
        return value.to_bytes(4, "big", signed=True)

    def named(name: bytes, uuid: bytes) -> bytes:
        return a_record(2, bytes([len(name) + 1]) + name + uuid + b"\0")

    def leads(uuid: bytes, partition: int, tags: bytes) -> bytes:
        return a_record(5, number(partition) + uuid + tags)

    def fenced(broker: int, byte: int) -> bytes:
        return a_record(17, number(broker) + bytes(8) + bytes([1, 0, 1, byte]))

    isr_and_leader = bytes([2, 0, 5, 2]) + number(3) + bytes([1, 4]) + number(3)
    values = [
        named(b"other", other),
        named(b"records", topic),
        fenced(3, 1),
        leads(topic, 0, bytes([1, 1, 4]) + number(-1)),
        a_record(27, number(3) + b"the rest of a registration"),
        leads(topic, 0, isr_and_leader),
        leads(other, 0, isr_and_leader),
        leads(topic, 1, isr_and_leader),
        leads(topic, 0, bytes([1, 0, 5, 2]) + number(3)),
        a_record(17, number(2) + bytes(8) + b"\0"),
        fenced(3, 255),
    ]
    log = reference.batches(record_batch(values))
    found = [one.words for one in replication.changes(log, "records")]
    assert found == [
        "fenced 3 @ 2",
        "leader -1 @ 3",
        "registered 3 @ 4",
        "leader 3 @ 5",
        "unfenced 3 @ 10",
    ]
    assert replication.changes(log, "nothing") == [
        one for one in replication.changes(log, "records") if one.kind != "leader"
    ]


def test_a_log_as_a_broker_wrote_it(tmp_path: Path) -> None:
    torn = written(4, [record(b"torn")])[:-3]
    data = [
        written(0, [record(b"a"), record(b"b")], pid=5, epoch=0, seq=0, transactional=True),
        marker(2, COMMIT, pid=5, epoch=0),
        marker(3, ABORT, pid=6, epoch=2),
    ]
    segment(tmp_path / "t-0", data, tail=torn)
    log = bench.batches(tmp_path, ("t", 0))
    assert [one.base_offset for one in log] == [0, 2, 3], "what is being written is left out"
    assert [one.words for one in bench.markers(log)] == [
        "COMMIT @ 2 (producer 5, epoch 0)",
        "ABORT @ 3 (producer 6, epoch 2)",
    ]
    assert [one.value for one in bench.records(log)] == [b"a", b"b"]
    assert bench.table(log)[0] == "0-1 transactional producer 5 epoch 0 sequence 0 leader epoch 0"
    assert bench.table(log)[2].startswith("3-3 ABORT producer 6 epoch 2")
    assert bench.batches(tmp_path, ("t", 1)) == []


def test_connections_to_the_proxies_of_a_link() -> None:
    table = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:C001 0100007F:4E20 01 00000000:00000000 00:00000000 00000000     0        0 2
   2: 0100007F:4E20 0100007F:C001 01 00000000:00000000 00:00000000 00000000     0        0 3
   3: 0100007F:C002 0100007F:4E20 06 00000000:00000000 00:00000000 00000000     0        0 4
   4: 0100007F:C003 0100007F:4E21 01 00000000:00000000 00:00000000 00000000     0        0 5
"""
    assert connections(table.splitlines(), {20000}) == {0xC001, 0xC002}
    assert connections([], {20000}) == frozenset()


def test_committed_records_and_offset_syncs_are_read_from_a_target(tmp_path: Path) -> None:
    ours: dict[str, Any] = {"pid": 5, "epoch": 0, "transactional": True}
    data = [
        written(0, [record(b"aborted")], seq=0, **ours),
        written(1, [record(b"another's")], pid=6, epoch=0, seq=0, transactional=True),
        marker(2, ABORT, pid=5, epoch=0),
        written(3, [record(b"a"), record(b"b")], seq=1, **ours),
        written(5, [record(b"plain")]),
        marker(6, COMMIT, pid=5, epoch=0),
        written(7, [record(b"open")], seq=3, **ours),
    ]
    segment(tmp_path / "t-0", data)
    assert committed(bench.batches(tmp_path, ("t", 0))) == {3: b"a", 4: b"b", 5: b"plain"}

    def sync(topic: bytes, partition: int, there: int, here: int) -> Plain:
        key = len(topic).to_bytes(2, "big") + topic + partition.to_bytes(4, "big")
        return record(there.to_bytes(8, "big") + here.to_bytes(8, "big"), key=key)

    segment(
        tmp_path / "syncs-0",
        [
            written(
                0,
                [
                    sync(b"t", 0, 10, 3),
                    sync(b"t", 1, 7, 7),
                    sync(b"other", 0, 1, 1),
                    sync(b"t", 0, 12, 5),
                ],
            )
        ],
    )
    assert syncs(bench.batches(tmp_path, ("syncs", 0)), "t") == [(10, 3), (12, 5)]


@pytest.mark.parametrize(
    ("formula", "same"),
    [
        ("keep", {"AB", "AC", "BC"}),
        ("negate", {"AC"}),
        ("complement", {"AC"}),
        ("region", {"AB"}),
        ("advance", set()),
    ],
)
def test_producers_that_have_one_id_after_two_hops(formula: str, same: set[str]) -> None:
    for drawn in (0, 7, 1000):
        ids = _ids(formula, drawn)
        assert {a + b for a in ids for b in ids if a < b and ids[a] == ids[b]} == same


class Thrown:
    """A Java exception as py4j passes it on."""

    def __init__(self, name: str, cause: Thrown | None = None) -> None:
        self.name, self.cause = name, cause

    def getClass(self) -> Thrown:
        return self

    def getSimpleName(self) -> str:
        return self.name

    def getCause(self) -> Thrown | None:
        return self.cause


def test_the_innermost_exception_of_java_is_named() -> None:
    class Error:
        java_exception = Thrown("ExecutionException", Thrown("ProducerFencedException"))

    assert failure(Error()) == "ProducerFencedException"

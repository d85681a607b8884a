"""Cases: what a result says and with which exit code, what is stored, and that every registered
case is complete."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import click.testing
import pytest
from click.testing import CliRunner

from linkflap.chaos.cases import GROUPS, case_named, registry, results, track_record
from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.benches import Benches
from linkflap.chaos.cases.case import Case, Expected, Observation, Outcome, number
from linkflap.chaos.cases.rates import interval, words
from linkflap.chaos.cases.runner import Result, check, run_case
from linkflap.chaos.cases.variant import Client, Protocol, Variant
from linkflap.harness.cli.case import _MATRIX, _benches, _worst, case
from linkflap.harness.cli.case_options import shard_option
from linkflap.harness.cli.commands import _exit_of
from linkflap.harness.machine import ledger
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.topology import ClusterSpec, Topology
from linkflap.harness.runtimes.distribution import kafka as kafkas
from linkflap.harness.runtimes.distribution import pin

ROOT = Path(__file__).parents[2]


def a_case(**changed: Any) -> Case:
    values: dict[str, Any] = {
        "name": "a-case",
        "title": "A title",
        "kind": "defect",
        "claim_text": "It happens",
        "sources": ("KAFKA-1",),
        "expected": (Expected(shows=True, since="4.3.0"), Expected(shows=False, until="4.2.1")),
        "schedule": "1. do it",
        "reproduced": "it shows",
        "control_text": "not done",
        "refuted": "never",
        "topology": Topology(clusters=(ClusterSpec(name="A"),), links=()),
        "claim": lambda bench: Observation(shown=True),
        "control": lambda bench: Observation(shown=False),
    }
    return Case(**values | changed)


def a_result(
    version: str = "4.3.1", shown: int = 0, runs: int = 3, needed: int = 3, **changed: Any
) -> Result:
    outcome = Outcome.REPRODUCED if shown else Outcome.NOT_REPRODUCED
    values: dict[str, Any] = {
        "case": "a-case",
        "variant": Variant(kafka=version),
        "version": version,
        "outcome": outcome,
        "shown": shown,
        "runs": runs,
        "needed": needed,
        "controls": runs,
        "expected": a_case().expectation(Variant(kafka=version), version),
    }
    return Result(**values | changed)


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
def test_wilsons_interval(shown: int, runs: int, low: float, high: float) -> None:
    found = interval(shown, runs)
    assert found == pytest.approx((low, high), abs=5e-5)
    assert found[0] <= (shown / runs if runs else 0.5) <= found[1]


def test_an_interval_of_more_than_there_were_is_refused() -> None:
    with pytest.raises(ValueError, match="4 of 3"):
        interval(4, 3)
    assert words(3, 3) == "3 of 3 (44 to 100 %)"


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
def test_exit_codes(result: Result, code: int) -> None:
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
def test_a_release_that_is_none(wrong: str) -> None:
    with pytest.raises(InputError, match=r"is no release; write one as 4\.3\.1"):
        number(wrong)


def test_results_are_stored_and_added_up(tmp_path: Path) -> None:
    each = a_case()
    for shown in (3, 1):
        results.store(tmp_path, results.row(each, a_result(shown=shown)))
    results.store(
        tmp_path,
        results.row(each, a_result(runs=0, outcome=Outcome.UNKNOWN, why="no run came to its end")),
    )
    results.store(tmp_path, results.row(each, a_result("4.2.0")))
    rows = results.load(tmp_path)
    assert len(rows) == 4
    found = results.tallies(rows)
    tally = found["a-case", "4.3.1", "librdkafka", ""]
    assert (tally.outcome, tally.shown, tally.runs) == (Outcome.REPRODUCED, 4, 6)
    page = track_record.render(rows, {"a-case": each})
    assert (
        "| 4.2.0 | librdkafka | default | NOT REPRODUCED 0 of 3 (0 to 56 %) | does not show |"
        in page
    )
    assert "| 4.3.1 | librdkafka | default | REPRODUCED 4 of 6 (30 to 90 %) | shows |" in page
    assert page.index("| 4.2.0 | librdkafka") < page.index("| 4.3.1 | librdkafka")


def test_guarantees_by_client_and_protocol(tmp_path: Path) -> None:
    each = a_case(
        name="KIP-360-x",
        kind="guarantee",
        clients=("librdkafka", "java"),
        protocols=("", "V1"),
        expected=(Expected(shows=False),),
    )
    played: tuple[tuple[str, Client, Protocol, int, int], ...] = (
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
    page = track_record.render(results.load(tmp_path), {each.name: each, "a-case": a_case()})
    assert "| 360 | `KIP-360-x` |  |  | 0 of 7 | *open* | *open* | **1 of 3** |" in page
    assert "`a-case` |" not in page


@pytest.mark.parametrize(
    "kip", ["98", "360", "447", "545", "618", "848", "890", "932", "966", "1228"]
)
def test_every_kip_that_clients_rely_on_has_a_case(kip: str) -> None:
    assert [case.name for case in registry().values() if track_record.relied_on(case) == kip]


def test_the_release_that_decides_and_where_it_is_missed(tmp_path: Path) -> None:
    each = a_case(runs=3)
    for version, shown, runs in (
        ("4.3.1", 3, 3),
        ("4.3.0", 1, 1),
        ("4.2.0", 0, 3),
        ("3.9.2", 0, 2),
    ):
        results.store(tmp_path, results.row(each, a_result(version, shown, runs)))
    page = track_record.render(results.load(tmp_path), {"a-case": each})
    assert "| `a-case` | 4.3.0, 4.3.1 | 4.2.0 |" in page, "two runs are no answer"
    assert "A NOT REPRODUCED takes 3 runs." in page
    assert "It did not show where" not in page, "it did not show where it should not"
    results.store(tmp_path, results.row(each, a_result("4.4.0", 0, 3)))
    page = track_record.render(
        results.load(tmp_path), {"a-case": replace(each, tried="three times, and nothing")}
    )
    assert "It did not show where it should. What was tried: three times, and nothing.\n" in page


def test_what_was_tried_is_written_of_every_case_that_did_not_show_on_a_release() -> None:
    found: dict[str, list[results.Tally]] = {}
    for key, tally in results.tallies(results.load(results.STORED)).items():
        found.setdefault(key[0], []).append(tally)
    missed = {name for name, tallies in found.items() if track_record.is_missed(tallies)}
    assert missed, "some did not"
    assert {name for name in missed if not registry()[name].tried} == set()
    page = (ROOT / "docs" / "track-record.md").read_text()
    for name in missed:
        assert f"What was tried: {registry()[name].tried}." in page
        assert f"  tried       {registry()[name].tried}\n" in invoked("show", name).output


def test_show_has_every_stored_result_of_the_case() -> None:
    shown = invoked("show", "KAFKA-16386").output
    for release, outcome in (
        ("3.7.0", "REPRODUCED"),
        ("3.7.1", "NOT REPRODUCED 0 of "),
        ("4.3.1", "NOT REPRODUCED 0 of "),
    ):
        assert f" {release} wire: {outcome}" in shown


def test_results_of_another_schedule_are_not_added_up(tmp_path: Path) -> None:
    results.store(tmp_path, results.row(a_case(schedule="1. do something else"), a_result(shown=3)))
    results.store(tmp_path, results.row(a_case(), a_result(shown=0)))
    (tally,) = results.tallies(results.load(tmp_path)).values()
    assert (tally.shown, tally.runs) == (0, 3)


def test_too_few_runs_are_marked(tmp_path: Path) -> None:
    results.store(tmp_path, results.row(a_case(), a_result("4.2.0", runs=2)))
    page = track_record.render(results.load(tmp_path), {"a-case": a_case()})
    assert "UNKNOWN: not shown in 0 of 2 (0 to 66 %); a NOT REPRODUCED takes 3 runs" in page
    assert "NOT REPRODUCED 0" not in page
    assert (
        a_result("4.2.0", runs=2).words
        == "UNKNOWN: not shown in 0 of 2 (0 to 66 %); a NOT REPRODUCED takes 3 runs"
    )
    assert a_result("4.2.0").words == "NOT REPRODUCED 0 of 3 (0 to 56 %)"


def test_a_torn_row_names_the_file_and_the_line(tmp_path: Path) -> None:
    results.store(tmp_path, results.row(a_case(), a_result()))
    with (tmp_path / "a-case.jsonl").open("a") as file:
        file.write('{"format": 1, "da\n')
    with pytest.raises(
        InputError, match=r"a-case.jsonl, line 2, is no stored result .*; remove that line"
    ):
        results.load(tmp_path)


def test_the_track_record_is_current() -> None:
    page = (ROOT / "docs" / "track-record.md").read_text()
    assert page == track_record.render(results.load(results.STORED), registry()), (
        "run: python -m linkflap.chaos.cases.track_record > docs/track-record.md"
    )


def test_stored_results_are_of_cases_that_there_are() -> None:
    stored = results.load(results.STORED)
    assert {row.case for row in stored} <= registry().keys()
    assert all(row.controls <= row.runs and row.shown <= row.runs for row in stored)


@pytest.mark.parametrize("name", registry())
def test_every_case_says_all_that_a_reader_needs(name: str) -> None:
    each = registry()[name]
    for text in (
        each.title,
        each.claim_text,
        each.schedule,
        each.reproduced,
        each.control_text,
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


def test_every_file_of_a_group_is_a_case() -> None:
    files = [
        path
        for group in GROUPS
        for path in (ROOT / "chaos" / "cases" / group).glob("*.py")
        if path.name != "__init__.py"
    ]
    assert files
    assert len(registry()) >= len(files)


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
def test_a_shard_that_is_none(text: str) -> None:
    with pytest.raises(InputError, match=r"is not of the form I/N"):
        shard_option(text)


def invoked(*words: str) -> click.testing.Result:
    return CliRunner().invoke(case, list(words), standalone_mode=False)


def ended(*words: str) -> tuple[int, str]:
    """The exit code and the sentence of a command that is refused."""
    error = invoked(*words).exception
    assert error is not None
    return _exit_of(error)


def test_list_and_show() -> None:
    assert invoked("list").output.count("\n") == len(registry())
    known = json.loads(invoked("list", "--json").output)
    assert [one["name"] for one in known] == list(registry())
    shown = invoked("show", "KAFKA-20734").output
    for title in (
        "claim",
        "sources",
        "expected",
        "schedule",
        "REPRODUCED",
        "control",
        "refuted by",
    ):
        assert f"  {title} " in shown
    assert json.loads(invoked("show", "KAFKA-20734", "--json").output)["kind"] == "defect"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("run", "nothing-like-it"), "there is no case"),
        (("run", "KAFKA-20734", "--kafka", "2.8"), "no list of jars is kept"),
        (
            ("run", "KAFKA-20734", "--kafka", "3.9.2", "--transactions", "V2"),
            "transactions V2 came with Kafka 4.0.0",
        ),
        (
            ("matrix", "--client", "java", "--transactions", "V2", "--kafka", "1.0"),
            "no list of jars is kept",
        ),
        (("run", "KAFKA-20734", "--kafka", ""), "an empty name is no Kafka"),
        (("run", "KAFKA-20734", "--client", "wire"), "is not played by wire"),
        (("run", "KAFKA-20734", "--clients", "wire"), "is not played by wire"),
        (("run", "KAFKA-20734", "--count", "0"), "0 is not in the range"),
        (("run", "KAFKA-20734", "--keep", str(ROOT)), "exists already; name a new folder"),
        (("matrix", "KAFKA-20734", "--shard", "5/4"), "is not of the form I/N"),
    ],
)
def test_bad_input_is_one_sentence_and_254(
    words: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    code, text = ended(*words, *(["--store", str(tmp_path)] if words[0] != "show" else []))
    assert code == 254
    assert sentence in text
    assert not list(tmp_path.iterdir()), "nothing was played"


@pytest.mark.parametrize(
    ("option", "names"), [("--store", "name another folder"), ("--keep", "there is no folder")]
)
def test_a_folder_that_cannot_be_made_is_said_before_anything_is_played(
    tmp_path: Path, option: str, names: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    code, text = ended("run", "KAFKA-20734", "--store", str(tmp_path), option, str(file / "in it"))
    assert code == 254
    assert f"{option} {file / 'in it'}" in text
    assert names in text
    assert [path.name for path in tmp_path.iterdir()] == ["file"], "nothing was stored"


@pytest.mark.parametrize(
    ("shown", "code"),
    [({"4.2.0": 0, "4.3.1": 3}, 0), ({"4.2.0": 2, "4.3.1": 3}, 1), ({"4.2.0": 0, "4.3.1": 0}, 1)],
)
def test_a_matrix_that_is_stored_already_ends_as_what_is_stored_says(
    tmp_path: Path, shown: dict[str, int], code: int
) -> None:
    each = case_named("KAFKA-20734")
    for version, count in shown.items():
        results.store(tmp_path, results.row(each, a_result(version, count, case=each.name)))
    words = ("matrix", each.name, "--kafka", "4.2.0", "--kafka", "4.3.1", "--store", str(tmp_path))
    assert invoked(*words).return_value == code


def test_a_matrix_of_all_cases_has_those_that_the_client_plays(tmp_path: Path) -> None:
    java = {
        name
        for name, each in registry().items()
        if "java" in each.clients and "V1" in each.protocols
    }
    for name in java:
        stored = a_result(
            "4.3.1",
            1,
            30,
            case=name,
            variant=Variant(kafka="4.3.1", client="java", transactions="V1"),
        )
        results.store(tmp_path, results.row(registry()[name], stored))
    done = invoked(
        "matrix",
        "--client",
        "java",
        "--transactions",
        "V1",
        "--kafka",
        "4.3.1",
        "--store",
        str(tmp_path),
    )
    assert done.exception is None, (
        "a case that is not played so is left out, and does not end the matrix"
    )
    assert done.stderr.count("stored already") == len(java) > 0


def test_transactions_v2_is_what_kafka_4_starts_with(tmp_path: Path) -> None:
    each = case_named("KAFKA-20734")
    results.store(tmp_path, results.row(each, a_result("4.2.0", 0, 3, case=each.name)))
    done = invoked(
        "matrix", each.name, "--transactions", "V2", "--kafka", "4.2.0", "--store", str(tmp_path)
    )
    assert done.return_value == 0
    assert "stored already" in done.stderr, "the result without --transactions is the one of V2"


def test_the_folder_of_the_brokers_goes_also_when_the_process_is_killed() -> None:
    with _benches(None):
        (folder,) = (Path(one) for one in ledger.own().folders if "linkflap-case-" in one)
        assert folder.is_dir(), "the watchdog removes what is in the ledger"
    assert not folder.exists()
    assert str(folder) not in ledger.own().folders


def test_a_case_that_needs_a_later_release_is_not_started(tmp_path: Path) -> None:
    with Benches(tmp_path / "runs") as benches:
        result = run_case(a_case(oldest="4.2.0"), Variant(kafka="3.9.2"), benches=benches)
    assert (result.outcome, result.why, result.exit_code) == (
        Outcome.NEEDS,
        "Kafka 4.2.0 or later",
        2,
    )
    assert not (tmp_path / "runs").exists()


def test_a_case_that_needs_a_build_is_not_started_on_a_release(tmp_path: Path) -> None:
    with Benches(tmp_path / "runs") as benches:
        result = run_case(
            case_named("KIP-1279-dead-source"), Variant(kafka="4.3.1"), benches=benches
        )
    assert (result.outcome, result.exit_code) == (Outcome.NEEDS, 2)
    assert result.words == "NEEDS: a build of the KIP-1279 branch (--kafka DIRECTORY)"
    assert not (tmp_path / "runs").exists()


def test_what_maven_lists_as_coordinates() -> None:
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
    """Deployments of nothing: what the runner does with steps that show, do not show, or fail."""

    def __init__(self) -> None:
        self.stamp, self.dropped, self.ended = "1-a-case", 0, 0

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
    """Steps whose runs show it or not, in turn; None: a step fails."""
    turns = iter(shown)

    def play(bench: Bench) -> Observation:
        seen = next(turns)
        if seen is None:
            raise DeadlineExceeded("waited 60 s for a leader")
        return Observation(shown=seen, facts={"shown": seen})

    return play


def test_control_and_claim_by_turns() -> None:
    benches = NoBenches()
    case = a_case(claim=steps(False, True, True), control=steps(False, False, False))
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
    case = a_case(claim=steps(True, True, True), control=steps(False, True, False))
    result = run_case(case, Variant(kafka="4.3.1"), benches=cast(Benches, NoBenches()))
    assert result.words == "UNKNOWN: the control showed it in 1 of 3 runs"
    assert (result.exit_code, result.controls) == (2, 2)


def test_a_guarantee_whose_control_does_not_show_the_anomaly_is_unknown() -> None:
    case = a_case(
        claim=steps(False),
        control=steps(False),
        control_shows=True,
        expected=(Expected(shows=False),),
    )
    result = run_case(case, Variant(kafka="4.3.1"), count=1, benches=cast(Benches, NoBenches()))
    assert result.words == "UNKNOWN: the control did not show it in 1 of 1 runs"


def test_a_run_that_failed_counts_for_nothing_and_gets_new_clusters() -> None:
    benches = NoBenches()
    case = a_case(claim=steps(None, False, False, False), control=steps(False, False, False, False))
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

    monkeypatch.setattr("linkflap.chaos.cases.benches.java_for", none)
    monkeypatch.setattr(kafkas, "kafka", lambda kafka: SimpleNamespace(version=kafka))
    with (
        Benches(tmp_path / "runs") as benches,
        pytest.raises(SetupError, match=r"for Kafka 4\.3\.1; install"),
    ):
        run_case(a_case(), Variant(kafka="4.3.1"), benches=benches)
    assert not (tmp_path / "runs").exists()


def test_three_failures_in_a_row_end_the_case() -> None:
    case = a_case(claim=steps(None, None, None), control=steps(False, False, False))
    result = run_case(case, Variant(kafka="4.3.1"), benches=cast(Benches, NoBenches()))
    assert (
        result.words
        == "UNKNOWN: no run came to its end: run 1: DeadlineExceeded: waited 60 s for a leader"
    )
    assert (result.exit_code, len(result.failures)) == (2, 3)


def test_a_mirrored_case_gets_clusters_of_its_own_for_control_and_claim() -> None:
    benches = NoBenches()
    case = a_case(claim=steps(True), control=steps(False), apart=True)
    assert (
        run_case(case, Variant(kafka="4.3.1"), count=1, benches=cast(Benches, benches)).shown == 1
    )
    assert benches.dropped == 2


def test_what_is_wrong_with_a_case_itself_is_not_hidden_as_a_failed_run() -> None:
    def broken(bench: Bench) -> Observation:
        raise InputError("there is no such mirror")

    with pytest.raises(InputError, match="there is no such mirror"):
        run_case(
            a_case(claim=steps(True), control=broken),
            Variant(kafka="4.3.1"),
            benches=cast(Benches, NoBenches()),
        )

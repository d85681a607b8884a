"""Explaining: one anomaly, with the bytes of both sides and the operations that touch it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

import msgspec
import pytest
from click.testing import CliRunner

from linkflap.cli.commands import linkflap
from linkflap.harness.model.errors import InputError
from linkflap.spark_verify.inspect.explain import explain
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import KIP_1279, asked, judged, judged_again
from tests.kafka_log import ABORT, batches_in, field_of, rewrite, with_marker_kind
from tests.synthetic import DIED, TOPIC, write_run


def written(judgement: Judgement) -> Path:
    """The folder with its verdict, as `linkflap verify` leaves it."""
    (judgement.folder / "verdict.json").write_bytes(msgspec.json.encode(judgement.document))
    return judgement.folder


@pytest.fixture
def diverged(tmp_path: Path) -> Path:
    return written(
        judged(tmp_path / "run", asked({n: KIP_1279 / "3-diverged" / n for n in "AB"}, "B->A"))
    )


@pytest.fixture
def aborted(tmp_path: Path) -> tuple[Path, int]:
    """A recorded run in whose log of A the second transaction ends in ABORT, although its commit
    returned ok."""
    root = write_run(tmp_path / "run")
    path = root / "captures" / DIED / "A" / "1" / f"{TOPIC}-0" / f"{0:020}.log"
    data = [each for _, each in batches_in(path)]
    data[3] = with_marker_kind(data[3], ABORT)
    rewrite(path, data)
    return written(judged_again(root)), field_of(data[3], "base_offset")


def test_both_sides_are_shown_around_the_offset(diverged: Path) -> None:
    explained = explain(diverged, "byte-equality:A:tx-0@22")
    assert explained.promised.startswith("Where a mirror keeps offsets")
    assert explained.meaning.startswith("A batch at the same offset has another")
    assert (
        explained.there
        == "A/0 has data at 22-23 (leader epoch 2, CRC 28cfd9f8); B/0 has MIRROR_PID_RESET at 22"
        " (leader epoch 13, CRC 8a0e3187)"
    )
    ours, theirs = explained.sides
    assert [(b["base_offset"], b["kind"]) for b in ours.batches] == [
        (18, "data"),
        (21, "COMMIT"),
        (22, "data"),
    ]
    assert [(b["base_offset"], b["kind"]) for b in theirs.batches] == [
        (18, "data"), (21, "ABORT"), (22, "MIRROR_PID_RESET"), (23, "data"), (26, "transactional"),
    ]  # fmt: skip
    assert [(r["offset"], r["value_bytes"]) for r in ours.records] == [(22, 6), (23, 6)]
    assert explained.total == 0


def test_a_number_and_a_position_name_the_same(diverged: Path) -> None:
    first = explain(diverged, "1")
    assert first.of == 5
    assert explain(diverged, first.anomaly.address) == first


def test_the_operations_and_polls_that_touch_it_are_shown(aborted: tuple[Path, int]) -> None:
    root, offset = aborted
    explained = explain(root, f"commit-aborted:A:{TOPIC}-0@{offset}")
    assert explained.anomaly.kind == "commit-aborted"
    assert {(row.phase, row.number) for row in explained.operations} == {
        ("invoke", (1 << 40) + 1),
        ("return", (1 << 40) + 1),
    }
    (side,) = (s for s in explained.sides if s.cluster == "A")
    assert f"A/1 has ABORT of producer 0 epoch 0 at {offset}" in explained.there
    assert [b["kind"] for b in side.batches if b["base_offset"] == offset] == ["ABORT"]


def test_records_name_the_operation_that_wrote_them_and_the_polls_that_got_them(
    aborted: tuple[Path, int],
) -> None:
    root, _ = aborted
    verdict = json.loads((root / "verdict.json").read_bytes())
    number = next(
        n for n, a in enumerate(verdict["anomalies"], start=1) if a["check"] == "lost-write"
    )
    explained = explain(root, str(number))
    uid = cast(int, explained.anomaly.evidence["uid"])
    assert any(
        g.first_uid <= uid < g.first_uid + g.count
        for row in explained.operations
        for g in row.sends
    )
    assert {poll.reader for poll in explained.polls} == {"r1"}
    shown = [r for side in explained.sides for r in side.records if r["uid"] == uid]
    assert shown
    assert {r["operation"] for r in shown} == {explained.operations[0].number}


def test_what_names_nothing_is_refused(diverged: Path, tmp_path: Path) -> None:
    for name, said in (
        ("0", "has 5"),
        ("6", "has 5"),
        ("-1", "has 5"),
        ("x", "names no anomaly"),
        ("lost-write:A:tx-0@1", "has no anomaly"),
    ):
        with pytest.raises(InputError, match=said):
            explain(diverged, name)
    below = CliRunner().invoke(linkflap, ["explain", str(diverged), "-1"], standalone_mode=False)
    assert "there is no anomaly -1: the verdict on" in str(below.exception)
    with pytest.raises(InputError, match="no verdict"):
        explain(tmp_path, "1")
    (diverged / "verdict.json").write_text("{")
    with pytest.raises(InputError, match="cannot be read"):
        explain(diverged, "1")
    (diverged / "verdict.json").write_text("{}")
    with pytest.raises(InputError, match="has no anomaly to explain"):
        explain(diverged, "1")
    for option, printed in (([], "the verdict has no anomaly"), (["--json"], "[]")):
        listed = CliRunner().invoke(
            linkflap, ["explain", str(diverged), *option], standalone_mode=False
        )
        assert (listed.stdout.strip(), listed.exception) == (printed, None)


def test_the_command_prints_text_or_one_document(diverged: Path) -> None:
    text = (
        CliRunner().invoke(linkflap, ["explain", str(diverged), "2"], standalone_mode=False).stdout
    )
    assert text.startswith("byte-divergence  byte-equality:A:tx-0@22  (anomaly 2 of 5)")
    assert "no operation of the history touches it" in text
    listed = CliRunner().invoke(linkflap, ["explain", str(diverged)], standalone_mode=False).stdout
    assert len(listed.splitlines()) == 5
    assert listed.splitlines()[1].startswith(
        "2  byte-divergence  byte-equality:A:tx-0@22: A has another batch than B at"
    )
    every = CliRunner().invoke(
        linkflap, ["explain", "--json", str(diverged)], standalone_mode=False
    )
    assert len(json.loads(every.stdout)) == 5
    result = CliRunner().invoke(
        linkflap, ["explain", "--json", str(diverged), "2"], standalone_mode=False
    )
    document = json.loads(result.stdout)
    assert document["anomaly"]["offset"] == 22
    assert [side["cluster"] for side in document["sides"]] == ["A", "B"]


def test_operations_are_described_in_words(aborted: tuple[Path, int]) -> None:
    root, offset = aborted
    text = (
        CliRunner()
        .invoke(
            linkflap,
            ["explain", str(root), f"commit-aborted:A:{TOPIC}-0@{offset}"],
            standalone_mode=False,
        )
        .stdout
    )
    assert "p1 #1099511627777 transaction on A, commit asked" in text
    assert "p1 #1099511627777 transaction on A, commit ok" in text
    assert "1099511627777 (p1 #1)" in text, "numbers stand beside the client that they are of"

"""Explaining anomalies of every kind: guarantee, bytes of both sides, operations, polls, samples,
group offsets, promotions."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import pytest
from click.testing import CliRunner

from linkflap.cli.commands import linkflap
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.events import (
    DescribedPartition,
    FailoverRefused,
    MirrorDescribed,
    MirrorVerb,
)
from linkflap.harness.model.history import Fetched, Poll, SendGroup
from linkflap.report.evidence import write_explanation
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.inspect.explain import Explanation, explain, uid_on_the_wire
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import KIP_1279, asked, judged, judged_again
from tests.faithful.clusters import Entry, uids_of
from tests.faithful.made import Made
from tests.faithful.mutations.base import PLANNED, returned
from tests.faithful.spec import GROUP, spec
from tests.faithful.spec import TOPIC as STORY
from tests.faithful.stories import story
from tests.faithful.wire import on_the_wire
from tests.kafka_log import ABORT, batches_in, field_of, rewrite, with_marker_kind
from tests.oracles import random_runs
from tests.oracles.agreement import findings
from tests.run_copy import Row, seal, views
from tests.synthetic import DIED, TOPIC, append_events, write_run


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


def test_explanation_shows_both_sides_around_the_offset(diverged: Path) -> None:
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


def test_name_without_an_anomaly_is_refused(diverged: Path, tmp_path: Path) -> None:
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
    named = "transaction transactional-1 #1 (1099511627777) of transactional-1 on A, "
    assert f"{named}transactional.id " in text
    assert ", commit requested\n" in text
    assert re.search(r", commit \(requested [0-9:.]+\) ok\n", text)
    assert re.search(r" to A\.t-0, acknowledged at \d+", text)
    assert "transactional-1 #1 (1099511627777)" in text, (
        "numbers stand beside the client that they are of"
    )


# Explaining anomalies of every kind: the guarantee, both sides, operations, polls, samples,
# group offsets and promotions.


KINDS = [(check.name, kind.name) for check in REGISTRY.values() for kind in check.anomalies]


def row_in(made: Made) -> Row:
    """A record of partition 0 that was acknowledged on A, read there by a member of the group, and
    mirrored to B."""
    mirrored = set(uids_of(made.log("B", topic=STORY)))
    for poll in made.polls:
        for fetched in poll.fetched if (poll.cluster, poll.group) == ("A", GROUP) else ():
            for uid, offset, _ in fetched.runs:
                if (fetched.topic, fetched.partition) == (STORY, 0) and offset and uid in mirrored:
                    return {
                        "offset": offset,
                        "uid": uid,
                        "operation": returned(made, uid).number,
                        "reader": made.readers[poll.reader],
                    }
    raise LookupError("no such record")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Row]:
    made = story(spec(1, **PLANNED, steps=5))
    return made.write(tmp_path_factory.mktemp("explained") / "run"), row_in(made)


def crc_of(batch: Entry) -> int:
    return int.from_bytes(batch.encoded()[17:21], "big")


def without_headers(made: Made) -> Made:
    """The run as of a program, which puts no ids of linkflap's into its records."""
    crcs: dict[int, int] = {}
    for log in made.logs.values():
        before, log.entries = (
            log.entries,
            [
                replace(e, records=tuple(r._replace(uid=-1, operation=-1) for r in e.records))
                for e in log.entries
            ],
        )
        crcs |= dict(zip(map(crc_of, before), map(crc_of, log.entries), strict=True))
    made.operations = [
        replace(row, sends=tuple(replace(g, crc=crcs.get(g.crc, g.crc)) for g in row.sends))
        for row in made.operations
    ]
    return made


def fetched_on_the_wire(poll: Poll, made: Made) -> Poll:
    """The poll as the recorder writes it: records without ids, and the CRC of each one's batch."""

    def crc(fetched: Fetched, offset: int) -> int:
        log = made.log(poll.cluster, fetched.partition, topic=fetched.topic)
        return crc_of(next(e for e in log if e.offset <= offset < e.end))

    return replace(
        poll,
        fetched=tuple(
            replace(
                each,
                runs=tuple(
                    (-1, at, 1) for _, first, n in each.runs for at in range(first, first + n)
                ),
                crcs=tuple(
                    crc(each, at) for _, first, n in each.runs for at in range(first, first + n)
                ),
            )
            for each in poll.fetched
        ),
    )


@pytest.mark.parametrize("missing", [False, True])
def test_what_was_recorded_on_the_wire_is_named_by_its_client_and_batch(
    tmp_path: Path, missing: bool
) -> None:
    """Also where A has lost the batch, and B has it."""
    made = without_headers(on_the_wire(story(spec(1, **PLANNED, steps=5))))
    row, group = next(
        (row, group)
        for row in made.operations
        for group in row.sends
        if (row.cluster, group.partition) == ("A", 0) and group.acks
    )
    offset = group.acks[0][2]
    made.polls = [fetched_on_the_wire(poll, made) for poll in made.polls]
    if missing:
        made.change("A", 0, lambda log: [e for e in log if e.offset != offset])
    root = with_verdict(
        made.write(tmp_path / "run"),
        {"check": "lost-write", "kind": "lost-write", "cluster": "A", "topic": STORY,
         "partition": 0, "offset": offset, "evidence": {"uid": group.first_uid}},
    )  # fmt: skip
    explained = explain(root, "1")
    for side in explained.sides:
        shown = {r["offset"]: r["uid"] for r in side.records}
        if missing and side.cluster == "A":
            assert offset not in shown
        else:
            assert shown[offset] == group.first_uid
    text = text_of(explained)
    batch = f"{group.first_uid} to {STORY}-0, sequence {group.sequence}, CRC {group.crc:08x}"
    assert f"producer {row.producer_id} epoch {row.producer_epoch}, " in text
    assert f"{batch}\n" in text, "when it was requested"
    assert f"{batch}, acknowledged at {offset}" in text, "when it was acknowledged"
    assert f"{group.first_uid} at {offset} (CRC {group.crc:08x})" in text, "by whom it was read"
    assert {poll.cluster for poll in explained.polls} == {"A", "B"}


def batch_on_the_wire(first_uid: int, *acks: tuple[int, int, int], count: int = 2) -> SendGroup:
    return SendGroup(
        topic="t", partition=0, first_uid=first_uid, count=count, acks=acks, crc=7, sequence=-1
    )


def test_equal_batches_are_distinguished_by_their_acknowledged_offsets_or_not_at_all() -> None:
    one, other = batch_on_the_wire(100, (0, 2, 10)), batch_on_the_wire(200, (0, 2, 20))
    assert uid_on_the_wire([one, other], 10, 2) == 100
    assert uid_on_the_wire([one, other], 21, 1) == 201, "the end of a batch"
    assert uid_on_the_wire([one, other], 30, 2) == -1, "another time, and by whom is not known"
    assert uid_on_the_wire([one], 30, 2) == 100, "written twice"
    assert uid_on_the_wire([one], 30, 1) == -1, "which record of it is not known"
    assert uid_on_the_wire([], 10, 2) == -1


def with_verdict(root: Path, *anomalies: Row) -> Path:
    (root / "verdict.json").write_bytes(msgspec.json.encode({"anomalies": anomalies}))
    return root


def text_of(explained: Explanation) -> str:
    stream = io.StringIO()
    write_explanation(explained, stream)
    return stream.getvalue()


@pytest.mark.parametrize(("check", "kind"), KINDS)
def test_an_offset_is_enough_for_all_that_shows_it(
    run: tuple[Path, Row], check: str, kind: str
) -> None:
    root, named = run
    anomaly = {
        "check": check,
        "kind": kind,
        "cluster": "A",
        "topic": STORY,
        "partition": 0,
        "offset": named["offset"],
    }
    shown = explain(with_verdict(root, anomaly | {"evidence": {"group": GROUP}}), "1")
    assert shown.promised == REGISTRY[check].guarantee
    assert shown.meaning
    assert shown.meaning.rstrip(".") in shown.sentence
    assert shown.there in shown.sentence
    assert {side.cluster for side in shown.sides} >= {"A", "B"}
    for side in shown.sides:
        assert any(b["base_offset"] <= named["offset"] <= b["last_offset"] for b in side.batches), (
            "the batch itself"
        )
        assert len(side.batches) > 1, "and its neighbours"
    assert named["operation"] in {row.number for row in shown.operations}
    assert named["reader"] in {row.reader for row in shown.polls}
    assert shown.watermarks
    assert all(mark.cluster == "A" for mark in shown.watermarks)
    about_a_link = anomaly | {"evidence": {"link": "A->B"}}
    both = explain(with_verdict(root, about_a_link), "1").watermarks
    assert {mark.cluster for mark in both} == {"A", "B"}
    assert {row.group for row in shown.groups} == {GROUP}
    assert {row.kind for row in shown.of_mirrors} >= {"promotion", "mirror-stopped", "failover"}
    text = text_of(shown)
    assert all(
        f"\n{heading}\n" in text
        for heading in ("sampled bounds", "committed offsets", "events of mirrors")
    )


def test_the_polls_of_a_reader_next_to_the_one_that_is_named_are_shown(
    run: tuple[Path, Row],
) -> None:
    root, named = run
    evidence = {"uid": named["uid"], "reader": named["reader"]}
    anomaly = {
        "check": "aborted-read",
        "kind": "aborted-read",
        "cluster": "A",
        "topic": STORY,
        "partition": 0,
        "offset": -1,
    }
    shown = explain(with_verdict(root, anomaly | {"evidence": evidence}), "1")
    mine = [row for row in shown.polls if row.reader == named["reader"]]
    got = [
        n
        for n, row in enumerate(mine)
        if any(u <= named["uid"] < u + c for f in row.fetched for u, _, c in f.runs)
    ]
    assert got
    assert got[0] > 0, "what the reader did before is there: at least its assignment"


def test_without_an_offset_the_ends_of_the_logs_and_the_events_of_the_mirror_show_it(
    run: tuple[Path, Row], tmp_path: Path
) -> None:
    root = tmp_path / "run"
    shutil.copytree(run[0], root)
    seal(root)
    error = "INVALID_CLUSTER_MIRROR_STATES"
    described = [
        MirrorDescribed(
            time=time,
            link="A->B",
            asked=time,
            rows=tuple(
                DescribedPartition(topic=STORY, partition=n, state=state, mirrors=True, lag=0)
                for n, state in enumerate(states)
            ),
        )
        for time, *states in ((11, "MIRRORING"), (12, "MIRRORING", "FAILED"), (13, "FAILED"))
    ]
    verb = MirrorVerb(
        time=14, link="A->B", verb="stop", accepted=False, tries=3, refused={error: 3}, seconds=60.0
    )
    refused = FailoverRefused(
        time=15, link="A->B", mode="forced", error=error, code=145, seconds=60.0
    )
    append_events(root, [event.row for event in (*described, verb, refused)])
    anomaly = {
        "check": "failover",
        "kind": "failover-refused",
        "cluster": "B",
        "topic": STORY,
        "partition": 0,
        "offset": -1,
    }
    shown = explain(with_verdict(root, anomaly | {"evidence": {"link": "A->B"}}), "1")
    assert [event for event in shown.of_mirrors if event.time < 16] == [
        described[0],
        described[2],
        verb,
        refused,
    ]
    text = text_of(shown)
    for side in shown.sides:
        assert f"last batches of {side.cluster}/{side.broker} in capture {side.moment}\n" in text
        last = side.batches[-1]["last_offset"]
        assert isinstance(last, int)
        assert side.there.endswith(f"a log that ends at {last + 1}")
    assert "stop, accepted false, tries 3" in text


def test_findings_in_changed_histories_can_be_explained(tmp_path: Path) -> None:
    seen: set[str] = set()
    for seed in range(8):
        root = tmp_path / str(seed)
        random_runs.written(seed, root)
        partitions = list(views(root))
        rows = [
            row
            for check in REGISTRY.values()
            for row in findings(check, partitions)
            if row.finding == "found"
        ]
        one_each = list({row.kind: row for row in rows}.values())
        names = ("check", "kind", "cluster", "topic", "partition", "offset")
        anomalies = [
            {name: getattr(row, name) for name in names} | {"evidence": row.data}
            for row in one_each
        ]
        with_verdict(root, *anomalies)
        for number, row in enumerate(one_each, start=1):
            shown = explain(root, str(number))
            assert row.cluster in {side.cluster for side in shown.sides}
            assert shown.sentence.count(shown.there) == 1
            assert text_of(shown).startswith(row.kind)
            assert msgspec.json.encode(shown)
            seen.add(row.kind)
    assert len(seen) > 5

"""Explaining anomalies of every kind: the guarantee, both sides, operations, polls, samples, group
offsets and promotions."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from random import Random

import msgspec
import pytest

from linkflap.harness.model.events import (
    DescribedPartition,
    FailoverRefused,
    MirrorDescribed,
    MirrorVerb,
)
from linkflap.report.evidence import write_explanation
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.inspect.explain import Explanation, explain
from tests.oracles.agreement import findings
from tests.oracles.changes import change
from tests.oracles.happenings import world
from tests.oracles.worlds import TOPIC, Row, World
from tests.oracles.written import write
from tests.run_copy import seal
from tests.run_views import views
from tests.synthetic import append_events

KINDS = [(check.name, kind.name) for check in REGISTRY.values() for kind in check.anomalies]


def row_in(made: World) -> Row | None:
    """A record that was acknowledged on A, read there, and is on B, in a world that failed over."""
    if not made.promotions or not any(
        g["group"] == "g" and g["partition"] == 0 for g in made.groups
    ):
        return None
    mirrored = {r["uid"]: batch["base"] for batch in made.logs["B", 0] for r in batch["records"]}
    for send in made.sends:
        for i, offset in enumerate(send["offsets"]):
            uid = send["first_uid"] + i
            readers = [
                r["reader"]
                for r in made.reads
                if r["cluster"] == "A" and r["partition"] == 0 and uid in r["uids"]
            ]
            if (
                send["cluster"] == "A"
                and send["partition"] == 0
                and offset > 0
                and readers
                and uid in mirrored
            ):
                return {
                    "offset": offset,
                    "uid": uid,
                    "operation": send["number"],
                    "reader": readers[0],
                }
    return None


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Row]:
    made = next(
        made
        for made in (world(Random(seed)) for seed in range(1000))
        if made.mirror == "shadow" and row_in(made)
    )
    named = row_in(made)
    assert named is not None
    return write(made, tmp_path_factory.mktemp("explained") / "run"), named


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
        "topic": TOPIC,
        "partition": 0,
        "offset": named["offset"],
    }
    shown = explain(with_verdict(root, anomaly | {"evidence": {"group": "g"}}), "1")
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
    assert {row.group for row in shown.groups} == {"g"}
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
        "topic": TOPIC,
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
                DescribedPartition(topic=TOPIC, partition=n, state=state, mirrors=True, lag=0)
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
        "topic": TOPIC,
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
        random = Random(seed)
        made = world(random)
        change(made, 4)
        root = write(made, tmp_path / str(seed))
        rows = [
            row
            for check in REGISTRY.values()
            for row in findings(check, list(views(root)))
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

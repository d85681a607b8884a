"""Captures of a cluster, earlier ones and the last: which of them represents it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from linkflap.spark_verify.facts.lineages import eras
from linkflap.spark_verify.read.damage import damage_of
from linkflap.spark_verify.read.plan import plan
from tests import hand_written, rounds, synthetic
from tests.run_views import views
from tests.synthetic import DIED, ENDED, TOPIC, append_events, write_run
from tests.unit.captured_bounds import bounds_of, write_bounds


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run")


def test_a_dead_cluster_is_judged_by_its_last_capture(root: Path) -> None:
    planned = plan(root)
    assert not planned.damage
    assert {(r.bounds.cluster, r.moment) for r in planned.replicas} == {("A", DIED), ("B", ENDED)}
    write_bounds(root, "0-earlier", [replace(b, log_start=1) for b in bounds_of(root, DIED)])
    assert {r.moment for r in plan(root).replicas} == {DIED, ENDED}


def test_a_newer_capture_that_was_not_finished_is_not_replaced_by_an_older_one(root: Path) -> None:
    write_bounds(
        root, "0-earlier", [b for moment in (DIED, ENDED) for b in bounds_of(root, moment)]
    )
    (root / "captures" / ENDED / "bounds.json").unlink()
    planned = plan(root)
    assert {r.bounds.cluster for r in planned.replicas} == {"A"}
    assert any("cluster B is in no finished capture" in d.reason for d in planned.damage)


def test_a_segment_that_the_manifest_promises_and_is_gone_tears_its_log(root: Path) -> None:
    path = root / "captures" / ENDED / "B" / "2" / f"{TOPIC}-0" / f"{0:020}.log"
    path.unlink()
    (found,) = [r for r in plan(root).replicas if r.damage]
    assert (found.bounds.broker, found.damage[0].split(":")[0]) == (2, str(path.relative_to(root)))
    assert any(str(path.relative_to(root)) in d.reason for d in damage_of(next(iter(views(root)))))


def test_a_cluster_that_was_truncated_has_its_earlier_captures_too(tmp_path: Path) -> None:
    root = rounds.round_trip().write(tmp_path / "rounds")
    (view,) = views(root)
    assert [(r.moment, r.cluster) for r in view.replicas] == [(ENDED, "A"), (ENDED, "B")]
    assert [(r.moment, r.captured, len(r.records)) for r in view.earlier] == [
        ("1-away", 15 * hand_written.SECOND, 12),
        ("1-reverse", 22 * hand_written.SECOND, 12),
    ]
    (truncation,) = view.truncations
    assert (truncation.link, truncation.cluster, truncation.offset, truncation.end) == (
        "B->A",
        "A",
        rounds.PARTED,
        16,
    )
    away, home = view.stops
    assert (away.mirrored, away.promoted, away.appended) == (
        11,
        12,
        ((11, "ABORT of producer 1, epoch 0"),),
    )
    assert (home.cluster, home.appended) == ("A", ())


def test_captures_are_in_the_order_of_their_events_not_of_their_names(tmp_path: Path) -> None:
    made = rounds.round_trip()
    names = {"1-away": "3-away", "2-end": "0-end"}
    made.logs = {
        (names.get(moment, moment), cluster): log for (moment, cluster), log in made.logs.items()
    }
    made.events = [
        (
            replace(e, data={k: names.get(str(v), v) for k, v in e.data.items()})
            if e.kind == "captured"
            else e
        )
        for e in made.events
    ]
    (view,) = views(made.write(tmp_path / "rounds"))
    assert [r.moment for r in view.earlier] == ["3-away", "1-reverse"]
    assert {r.moment for r in view.replicas} == {"0-end"}


def test_earlier_captures_of_a_cluster_that_never_followed_are_left_out(root: Path) -> None:
    write_bounds(root, "0-earlier", bounds_of(root, DIED))
    assert plan(root).earlier == []


def test_a_truncation_that_cannot_be_read_is_damage(root: Path) -> None:
    append_events(root, [synthetic._event(1, "truncation", "B->A", cluster="A")])
    assert any("truncation of B->A" in d.reason for d in plan(root).damage)


def test_a_reversal_that_never_came_to_the_point_truncated_nothing(tmp_path: Path) -> None:
    made = rounds.round_trip()
    made.events = [e for e in made.events if e.subject != "B->A"]
    (view,) = views(made.write(tmp_path / "rounds"))
    assert [w.took_effect for w in view.windows if w.fault == "mirror-reverse"] == [False]
    assert [e.origin for e in eras(view.partition_facts, "A")] == ["native"]

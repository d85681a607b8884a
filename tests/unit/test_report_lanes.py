"""Lanes of logs in a report: batches, truncations, and what is omitted when there are many."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.spark_verify.inspect import lanes as drawn
from linkflap.spark_verify.inspect.lanes import LanePoints, lanes, lanes_around
from linkflap.spark_verify.read.plan import plan
from tests.faithful.spec import spec
from tests.faithful.stories import story
from tests.kafka_log import batches_in, field_of


@pytest.fixture(scope="module")
def failback(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return story(spec(1, shape="round-trip")).write(tmp_path_factory.mktemp("lanes") / "run")


def test_a_lane_has_every_batch_of_its_log(failback: Path) -> None:
    for lane in lanes_around(failback, ()):
        moment = "*" if lane["truncated"] is None else "1-*"
        logs = sorted(
            failback.glob(
                f"captures/{moment}/{lane['cluster']}/{lane['broker']}/{lane['topic']}-{lane['partition']}"
            )
        )
        log = logs[-1] if lane["truncated"] is None else logs[0]
        bases = [
            field_of(batch, "base_offset")
            for path in sorted(log.glob("*.log"))
            for _, batch in batches_in(path)
        ]
        assert lane["base"] == bases
        assert lane["batches"] == len(bases)
        assert lane["bins"] is None


def test_a_truncated_tail_has_its_own_lane(failback: Path) -> None:
    found = [
        (lane["cluster"], lane["generation"], lane["truncated"])
        for lane in lanes_around(failback, ())
        if lane["partition"] == 0
    ]
    assert ("A", 1, None) in found
    assert [
        generation for cluster, generation, at in found if cluster == "A" and at is not None
    ] == [0]
    assert ("B", 0, None) in found


def test_of_many_batches_the_relevant_ones_are_kept(
    failback: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = {
        (lane["topic"], lane["partition"], lane["cluster"], lane["generation"]): lane
        for lane in lanes_around(failback, ())
    }
    monkeypatch.setattr(drawn, "RAW", sum(lane["batches"] for lane in every.values()) // 2)
    monkeypatch.setattr(drawn, "AROUND", (2,))
    topic, partition, _, _ = next(iter(every))
    for lane in lanes(plan(failback), LanePoints(offsets={(topic, partition): [5]})):
        whole = every[lane["topic"], lane["partition"], lane["cluster"], lane["generation"]]
        bins = lane["bins"]
        assert bins is not None
        assert sum(bins["records"]) == sum(whole["count"])
        assert sum(bins["markers"]) == sum(kind > 1 for kind in whole["kind"])
        assert set(lane["base"]) < set(whole["base"])
        if (lane["topic"], lane["partition"]) == (topic, partition):
            assert any(
                base <= 5 < base + count
                for base, count in zip(lane["base"], lane["count"], strict=True)
            )


def test_an_empty_log_is_an_empty_lane(failback: Path, tmp_path: Path) -> None:
    made = story(spec(1, shape="failover"))
    run = made.write(tmp_path / "run")
    for path in run.glob("captures/*/A/*/A.orders-0/*.log"):
        path.write_bytes(b"")
    empty = [
        lane
        for lane in lanes_around(run, ())
        if (lane["cluster"], lane["topic"], lane["partition"]) == ("A", "A.orders", 0)
    ]
    assert [(lane["base"], lane["batches"]) for lane in empty] == [([], 0)]

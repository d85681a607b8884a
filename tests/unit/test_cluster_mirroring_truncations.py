"""Truncations of a log by its new mirror: recorded when the bytes show them."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from linkflap.harness.log.batch_headers import Headers
from linkflap.harness.mirrors.cluster_mirroring import logs, mirror
from linkflap.harness.mirrors.cluster_mirroring.logs import TruncationWatch
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.wait import until
from tests.unit.recorded_failover import LOGS, headers


def copied(folder: Path, brokers: int = 1, moment: str = "3-diverged") -> SimpleNamespace:
    """Cluster A with the log of tx-0 on each of its brokers; it diverges from B's at 21."""
    found = {}
    for number in range(1, brokers + 1):
        shutil.copytree(LOGS / moment / "A" / "tx-0", folder / str(number) / "tx-0")
        found[number] = SimpleNamespace(log_dir=folder / str(number), state="running")
    return SimpleNamespace(brokers=found)


def log_file(cluster: SimpleNamespace, number: int = 1) -> Path:
    folder: Path = cluster.brokers[number].log_dir / "tx-0"
    return max(folder.glob("*.log"))


def truncate_at(cluster: SimpleNamespace, offset: int, number: int = 1) -> None:
    """Truncates a log's file, and appends B's bytes from there on at once."""
    mine, theirs = headers("3-diverged", "A"), headers("3-diverged", "B")
    position, there = (int(h.position[(h.base_offset >= offset).argmax()]) for h in (mine, theirs))
    tail = max((LOGS / "3-diverged" / "B" / "tx-0").glob("*.log")).read_bytes()[there:]
    with log_file(cluster, number).open("r+b") as file:
        file.truncate(position)
        file.seek(position)
        file.write(tail)


def watched(
    cluster: SimpleNamespace, source: Headers
) -> tuple[TruncationWatch, list[tuple[str, int, int, int]]]:
    noted = []
    read = logs.logs_of(cluster, [("tx", 0)])
    tails = {tp: logs.expected_tails(log, source) for tp, log in read.items()}
    return (
        logs.TruncationWatch(tails, lambda tp, where: noted.append((*tp, where.offset, where.end))),
        noted,
    )


@pytest.mark.parametrize("brokers", [1, 3])
def test_a_truncation_is_noted_when_the_bytes_show_it_whatever_follows_at_once(
    tmp_path: Path, brokers: int
) -> None:
    cluster = copied(tmp_path, brokers)
    end = logs.end_of(headers("3-diverged", "A"))
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    assert noted == []
    truncate_at(cluster, 21)
    until(lambda: bool(noted), within=60, what="the truncation to be noted")
    watch.close()
    assert noted == [("tx", 0, 21, end)]


def test_a_log_that_was_not_truncated_is_not_noted(tmp_path: Path) -> None:
    watch, noted = watched(copied(tmp_path), headers("3-diverged", "B"))
    watch.close()
    assert noted == []


def test_a_log_with_nothing_of_its_own_is_noted_when_it_grows(tmp_path: Path) -> None:
    cluster = copied(tmp_path, moment="1-before-stop")
    end = logs.end_of(headers("1-before-stop", "A"))
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    with log_file(cluster).open("ab") as file:
        file.write(b"the source's next batch")
    watch.close()
    assert noted == [("tx", 0, end, end)]


def test_a_replica_that_is_behind_grows_by_the_old_log_and_that_is_no_truncation(
    tmp_path: Path,
) -> None:
    cluster = copied(tmp_path, 2)
    whole = log_file(cluster, 2).read_bytes()
    log_file(cluster, 2).write_bytes(whole[: int(headers("3-diverged", "A").position[5])])
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    log_file(cluster, 2).write_bytes(whole)
    watch.close()
    assert noted == []


def test_truncations_are_looked_for_until_the_mirror_ends_and_not_only_until_it_mirrors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build reports MIRRORING before it has truncated, and another topic's record has been
    mirrored by then."""
    cluster = copied(tmp_path)
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    made = object.__new__(mirror.ClusterMirror)
    made._watching, made._running, made._mirrored, made._stopping = (
        watch,
        True,
        True,
        threading.Lock(),
    )
    made.link, made._recorder = (
        LinkSpec(source="B", destination="A"),
        SimpleNamespace(write=lambda event: event),
    )
    made._destination = SimpleNamespace(brokers={})
    monkeypatch.setattr(mirror.ClusterMirror, "lag", lambda self: None)
    truncate_at(cluster, 21)
    made.stop()
    assert [(partition, offset) for _, partition, offset, _ in noted] == [(0, 21)]


def test_what_is_truncated_after_the_end_is_not_noted(tmp_path: Path) -> None:
    cluster = copied(tmp_path)
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    watch.stop()
    truncate_at(cluster, 21)
    watch.close()
    assert noted == []


def test_logs_that_have_something_to_lose_are_owed_until_they_lost_it(tmp_path: Path) -> None:
    (tmp_path / "tail").mkdir()
    cluster = copied(tmp_path / "tail")
    watch, noted = watched(cluster, headers("3-diverged", "B"))
    assert watch.not_yet_truncated == [("tx", 0)]
    truncate_at(cluster, 21)
    until(lambda: bool(noted), within=60, what="the truncation to be noted")
    assert watch.not_yet_truncated == []
    watch.close()
    (tmp_path / "none").mkdir()
    nothing, _ = watched(
        copied(tmp_path / "none", moment="1-before-stop"), headers("3-diverged", "B")
    )
    assert nothing.not_yet_truncated == []
    nothing.close()

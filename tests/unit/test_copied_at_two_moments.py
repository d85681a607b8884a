"""Logs that were copied while their clusters ran: what the order of copying explains proves
nothing, and what it does not is found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from linkflap.cli.commands import linkflap
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import KIP_1279, asked, judged, sound
from tests.kafka_log import batch, batches_in, record, segment

ENDS = [*range(len(batches_in(next((KIP_1279 / "1-before-stop" / "A").rglob("tx-0/*.log")))))]


def pair(tmp_path: Path) -> Path:
    return shutil.copytree(KIP_1279 / "1-before-stop", tmp_path / "logs")


def shorten(logs: Path, cluster: str, batches: int) -> None:
    (path,) = (logs / cluster).rglob("tx-0/*.log")
    path.write_bytes(b"".join(data for _, data in batches_in(path)[:batches]))


def verdict(
    logs: Path, tmp_path: Path, promotions: dict[tuple[str, str, int], list[int]] | None = None
) -> Judgement:
    wanted = asked({name: logs / name for name in "AB"}, "A->B", promotions=promotions)
    return judged(tmp_path / "run", wanted)


def kinds(judgement: Judgement) -> set[str]:
    return {each.kind for each in judgement.anomalies}


@pytest.mark.parametrize("left", ENDS)
def test_a_source_that_was_copied_first_makes_it_unknown(tmp_path: Path, left: int) -> None:
    logs = pair(tmp_path)
    shorten(logs, "A", left)
    judgement = verdict(logs, tmp_path)
    assert (judgement.verdict, kinds(judgement)) == (Verdict.UNKNOWN, set())
    reason = str(judgement.document["reason"])
    assert "A was copied before B" in reason
    assert "--promotion B:tx-0=OFFSET" in reason


def test_a_destination_that_was_copied_first_lags(tmp_path: Path) -> None:
    logs = pair(tmp_path)
    shorten(logs, "B", 3)
    assert verdict(logs, tmp_path).verdict is Verdict.VALID


def test_a_stranger_below_the_sources_end_is_one(tmp_path: Path) -> None:
    logs = pair(tmp_path)
    (path,) = (logs / "A").rglob("tx-0/*.log")
    kept = [data for _, data in batches_in(path)]
    path.write_bytes(b"".join([*kept[:2], *kept[3:]]))
    judgement = verdict(logs, tmp_path)
    assert (judgement.verdict, kinds(judgement)) == (Verdict.INVALID, {"byte-stranger"})


def test_another_record_below_the_sources_end_is_found_beside_what_is_above_it(
    tmp_path: Path,
) -> None:
    for name, value in (("A", b"x"), ("B", b"y")):
        log = [batch(0, [record(value)]), batch(1, [record(b"later")])]
        segment(tmp_path / "logs" / name / "orders-0", log[: 1 if name == "A" else 2])
    judgement = verdict(tmp_path / "logs", tmp_path)
    assert (judgement.verdict, kinds(judgement)) == (Verdict.INVALID, {"byte-divergence"})


def running(folder: Path, *, stopped: bool = False) -> None:
    """A broker's folder whose checkpoint file was copied later than the log."""
    sound(folder / "orders-0")
    (folder / "replication-offset-checkpoint").write_text("0\n1\norders 0 14\n")
    if stopped:
        (folder / ".kafka_cleanshutdown").touch()


def test_a_checkpoint_above_the_log_proves_something_of_a_stopped_broker_alone(
    tmp_path: Path,
) -> None:
    for stopped in (False, True):
        folder = tmp_path / f"stopped-{stopped}"
        running(folder, stopped=stopped)
        judgement = judged(folder / "judged", asked({"A": folder}))
        done = CliRunner().invoke(linkflap, ["forensics", str(folder)], standalone_mode=False)
        if stopped:
            assert (judgement.verdict, kinds(judgement)) == (Verdict.INVALID, {"log-ends-early"})
            assert done.return_value == 1
        else:
            assert (judgement.verdict, kinds(judgement)) == (Verdict.UNKNOWN, set())
            assert "a broker that runs while it is copied" in str(judgement.document["reason"])
            assert done.return_value == 2
            assert "cannot be known: log-ends-early: " in done.output


def test_replicas_that_were_copied_one_after_the_other_agree(tmp_path: Path) -> None:
    for broker, stop in (("1", 2), ("2", 4), ("3", 6)):
        path = sound(tmp_path / "logs" / broker / "orders-0")
        path.write_bytes(b"".join(data for _, data in batches_in(path)[:stop]))
        noted = "0\n1\norders 0 10\n" if broker == "2" else "0\n1\norders 0 2\n"
        (tmp_path / "logs" / broker / "replication-offset-checkpoint").write_text(noted)
    judgement = judged(tmp_path / "run", asked({"A": tmp_path / "logs"}))
    assert (judgement.verdict, kinds(judgement)) == (Verdict.UNKNOWN, set())
    assert "on broker 2 ends at 7, below the high watermark 10" in str(judgement.document["reason"])


def test_a_stopped_replica_that_ends_early_has_no_tail_of_a_deposed_leader(tmp_path: Path) -> None:
    log = [batch(n, [record(b"%d" % n)]) for n in range(4)]
    for broker, length in (("1", 2), ("2", 4)):
        folder = tmp_path / "logs" / broker
        segment(folder / "orders-0", log[:length])
        (folder / "replication-offset-checkpoint").write_text("0\n1\norders 0 4\n")
        (folder / ".kafka_cleanshutdown").touch()
    judgement = judged(tmp_path / "run", asked({"A": tmp_path / "logs"}))
    assert (judgement.verdict, kinds(judgement)) == (Verdict.INVALID, {"log-ends-early"})
    assert "older leader epoch" not in str(judgement.document["reason"])


@pytest.mark.parametrize("later", [False, True])
def test_the_tail_of_a_deposed_leader_is_unknown(tmp_path: Path, later: bool) -> None:
    """Broker 1 led in epoch 5, and died with a batch that nobody had; broker 2 leads in epoch 6. If
    broker 1 has a batch of the new epoch behind its own, it should have truncated that."""
    same = batch(0, [record(b"same")], leader_epoch=5)
    old, new = (
        batch(1, [record(value)], leader_epoch=epoch) for value, epoch in ((b"old", 5), (b"new", 6))
    )
    last = batch(2, [record(b"last")], leader_epoch=6)
    segment(tmp_path / "logs" / "1" / "orders-0", [same, old, *([last] if later else [])])
    segment(tmp_path / "logs" / "2" / "orders-0", [same, new, last])
    judgement = judged(tmp_path / "run", asked({"A": tmp_path / "logs"}))
    if later:
        assert judgement.verdict is Verdict.INVALID
        assert "replica-disagreement" in kinds(judgement)
    else:
        assert (judgement.verdict, kinds(judgement)) == (Verdict.UNKNOWN, set())
        assert "in an older leader epoch than broker 2" in str(judgement.document["reason"])


def test_of_many_findings_the_first_are_printed(tmp_path: Path) -> None:
    for number in range(30):
        path = sound(tmp_path / "many" / f"orders-{number}")
        content = bytearray(path.read_bytes())
        content[80] ^= 1
        path.write_bytes(content)
    done = CliRunner().invoke(
        linkflap, ["forensics", str(tmp_path / "many")], standalone_mode=False
    )
    assert done.return_value == 1
    assert "20. corrupt-batch" in done.output
    assert "21. " not in done.output
    assert "... and 10 more, in the document of --json" in done.output


def test_a_torn_tail_says_what_looks_so(tmp_path: Path) -> None:
    path = sound(tmp_path / "logs" / "orders-0")
    path.write_bytes(path.read_bytes()[:-20])
    judgement = judged(tmp_path / "run", asked({"A": tmp_path / "logs"}))
    assert judgement.verdict is Verdict.UNKNOWN
    assert "the log of a broker that runs while it is copied looks so" in str(
        judgement.document["reason"]
    )

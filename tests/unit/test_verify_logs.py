"""Copied logs without a history: bad input, two moments, and MirrorMaker 2."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner

from linkflap.cli.commands import linkflap
from linkflap.cli.log_options import logs_request
from linkflap.harness.capture.logs_request import LogsRequest, names_of
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import (
    BAD,
    KIP_1279,
    asked,
    judged,
    overlapping_segments,
    segment_of_another_topic,
    sound,
)
from tests.kafka_log import (
    ABORT,
    COMMIT,
    batch,
    batches_in,
    changed,
    marker,
    record,
    rewrite,
    segment,
)

# Bad input: damage is reported with its file and position, the rest is verified, and nothing is
# ever valid.


def logs(tmp_path: Path) -> tuple[LogsRequest, Path]:
    """Two topics on two clusters; the path of the second topic's log on B."""
    for cluster in "AB":
        sound(tmp_path / cluster / "fine-0")
        path = sound(tmp_path / cluster / "orders-0")
    return asked({name: tmp_path / name for name in "AB"}, "A->B"), path


def reason(judgement: Judgement, name: str) -> str:
    return next(c.reason for c in judgement.checks if c.name == name)


def test_sound_logs_are_valid(tmp_path: Path) -> None:
    wanted, _ = logs(tmp_path)
    judgement = judged(tmp_path / "run", wanted)
    assert judgement.verdict is Verdict.VALID
    assert judgement.anomalies == []


def test_a_file_whose_name_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    sound(tmp_path / "A" / "orders-0")
    sound(tmp_path / "B" / "orders-0")
    (tmp_path / "A" / "orders-0" / "\udcff.log").write_bytes(
        b"no segment"
    )  # a byte that is no text
    run = tmp_path / "run"
    judgement = judged(run, asked({name: tmp_path / name for name in "AB"}, "A->B"))
    assert judgement.verdict is Verdict.VALID
    assert "udcff" not in (run / "manifest.json").read_text()


@pytest.mark.parametrize("cluster", ["A", "B"])
@pytest.mark.parametrize("what", BAD)
def test_damage_is_named_and_the_rest_is_verified(tmp_path: Path, what: str, cluster: str) -> None:
    wanted, _ = logs(tmp_path)
    spoil, said = BAD[what]
    path = tmp_path / cluster / "orders-0" / "00000000000000000000.log"
    spoil(path)
    judgement = judged(tmp_path / "run", wanted)
    assert judgement.verdict in (Verdict.UNKNOWN, Verdict.INVALID)
    reasons = reason(judgement, "recording")
    assert said in reasons
    assert str(path.parent) in reasons
    assert {a.topic for a in judgement.anomalies} <= {"orders"}
    fine = [
        e
        for e in cast(list[dict[str, Any]], judgement.document["eras"])
        if e["topic"] == "fine" and e["cluster"] == "B"
    ]
    assert [e["compared"]["batches"] for e in fine] == [6]
    assert fine[0]["verdict"] == "valid"


@pytest.mark.parametrize(
    ("spoil", "where"),
    [
        (segment_of_another_topic, "00000000000000003000.log at byte 0"),
        (overlapping_segments, "00000000000000000007.log at byte 0"),
    ],
)
def test_the_file_is_named_and_not_the_first_one(
    tmp_path: Path, spoil: Callable[[Path], None], where: str
) -> None:
    wanted, path = logs(tmp_path)
    spoil(path)
    assert where in reason(judged(tmp_path / "run", wanted), "recording")


def test_a_topic_that_one_side_does_not_have_is_unknown_and_said_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wanted, _ = logs(tmp_path)
    sound(tmp_path / "A" / "forgotten-0")
    caplog.set_level("INFO", "linkflap")
    judgement = judged(tmp_path / "run", wanted)
    said = "B has no log of forgotten, which A has: what A->B mirrored of it is not compared"
    assert caplog.messages == [said]
    assert judgement.verdict is Verdict.UNKNOWN
    assert "no log of forgotten-0 on B" in reason(judgement, "recording")


def test_replicas_that_differ_are_invalid(tmp_path: Path) -> None:
    wanted, _ = logs(tmp_path)
    for broker in ("1", "2"):
        for topic in ("fine-0", "orders-0"):
            sound(tmp_path / "A2" / broker / topic)
    path = tmp_path / "A2" / "2" / "orders-0" / "00000000000000000000.log"
    data = [each for _, each in batches_in(path)]
    rewrite(path, [data[0], changed(data[1], pid=9), *data[2:]])
    judgement = judged(tmp_path / "run", asked({"A": tmp_path / "A2", "B": tmp_path / "B"}, "A->B"))
    assert judgement.verdict is Verdict.INVALID
    assert ("replica-disagreement", "A", 2) in {
        (a.kind, a.cluster, a.offset) for a in judgement.anomalies
    }
    del wanted


def test_sequences_of_a_log_that_may_have_been_compacted_are_unknown_where_offsets_are_missing(
    tmp_path: Path,
) -> None:
    wanted, _ = logs(tmp_path)
    for cluster in "AB":
        path = tmp_path / cluster / "orders-0" / "00000000000000000000.log"
        data = [each for _, each in batches_in(path)]
        rewrite(path, [*data[:2], *data[4:]])
    judgement = judged(tmp_path / "run", wanted)
    assert judgement.verdict is Verdict.UNKNOWN
    assert judgement.anomalies == []
    assert "1 sequences of A break where offsets are missing" in reason(
        judgement, "sequence-continuity"
    )


@pytest.mark.parametrize(
    ("how", "verdict"), [("keep", Verdict.UNKNOWN), ("negate", Verdict.INVALID)]
)
def test_producer_ids_that_no_broker_hands_out_are_named_where_the_mirror_keeps_ids(
    tmp_path: Path, how: str, verdict: Verdict
) -> None:
    wanted, _ = logs(tmp_path)
    for cluster in "AB":
        path = tmp_path / cluster / "orders-0" / "00000000000000000000.log"
        data = [each for _, each in batches_in(path)]
        rewrite(path, [data[0], changed(data[1], pid=-9), *data[2:]])
    judgement = judged(tmp_path / "run", replace(wanted, options={"producer_ids": how}))
    assert judgement.verdict is verdict
    assert ("first -9 at offset 2" in reason(judgement, "recording")) == (how == "keep")


@pytest.mark.parametrize(
    "changes", [{"count": 3}, {"count": -1}, {"last_delta": 0}, {"base_offset": (1 << 63) - 2}]
)
def test_a_header_that_cannot_be_on_both_sides_is_named_and_never_valid(
    tmp_path: Path, changes: dict[str, int]
) -> None:
    wanted, _ = logs(tmp_path)
    for cluster in "AB":
        path = tmp_path / cluster / "orders-0" / "00000000000000000000.log"
        data = [each for _, each in batches_in(path)]
        rewrite(path, [data[0], changed(data[1], **changes), *data[2:]])
    judgement = judged(tmp_path / "run", wanted)
    assert judgement.verdict is Verdict.UNKNOWN
    assert f"orders-0/{0:020}.log at byte {len(data[0])}: impossible-" in reason(
        judgement, "recording"
    )
    fine = [
        e
        for e in cast(list[dict[str, Any]], judgement.document["eras"])
        if e["topic"] == "fine" and e["cluster"] == "B"
    ]
    assert fine[0]["verdict"] == "valid"


# Logs that were copied while their clusters ran: what the order of copying explains proves
# nothing, and what it does not is found.


ENDS = [*range(len(batches_in(next((KIP_1279 / "1-before-stop" / "A").rglob("tx-0/*.log")))))]


def pair(tmp_path: Path) -> Path:
    return shutil.copytree(KIP_1279 / "1-before-stop", tmp_path / "logs")


def shorten(logs: Path, cluster: str, batches: int) -> None:
    (path,) = (logs / cluster).rglob("tx-0/*.log")
    path.write_bytes(b"".join(data for _, data in batches_in(path)[:batches]))


def verdict_of_moments(logs: Path, tmp_path: Path) -> Judgement:
    wanted = asked({name: logs / name for name in "AB"}, "A->B")
    return judged(tmp_path / "run", wanted)


def kinds_of(judgement: Judgement) -> set[str]:
    return {each.kind for each in judgement.anomalies}


@pytest.mark.parametrize("left", ENDS)
def test_source_copied_before_its_destination_is_unknown(tmp_path: Path, left: int) -> None:
    logs = pair(tmp_path)
    shorten(logs, "A", left)
    judgement = verdict_of_moments(logs, tmp_path)
    assert (judgement.verdict, kinds_of(judgement)) == (Verdict.UNKNOWN, set())
    reason = str(judgement.document["reason"])
    assert "A was copied before B" in reason
    assert "--promotion B:tx-0=OFFSET" in reason


def test_a_destination_that_was_copied_first_lags(tmp_path: Path) -> None:
    logs = pair(tmp_path)
    shorten(logs, "B", 3)
    assert verdict_of_moments(logs, tmp_path).verdict is Verdict.VALID


def test_a_stranger_below_the_sources_end_is_one(tmp_path: Path) -> None:
    logs = pair(tmp_path)
    (path,) = (logs / "A").rglob("tx-0/*.log")
    kept = [data for _, data in batches_in(path)]
    path.write_bytes(b"".join([*kept[:2], *kept[3:]]))
    judgement = verdict_of_moments(logs, tmp_path)
    assert (judgement.verdict, kinds_of(judgement)) == (Verdict.INVALID, {"byte-stranger"})


def test_another_record_below_the_sources_end_is_found_beside_what_is_above_it(
    tmp_path: Path,
) -> None:
    for name, value in (("A", b"x"), ("B", b"y")):
        log = [batch(0, [record(value)]), batch(1, [record(b"later")])]
        segment(tmp_path / "logs" / name / "orders-0", log[: 1 if name == "A" else 2])
    judgement = verdict_of_moments(tmp_path / "logs", tmp_path)
    assert (judgement.verdict, kinds_of(judgement)) == (Verdict.INVALID, {"byte-divergence"})


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
            assert (judgement.verdict, kinds_of(judgement)) == (Verdict.INVALID, {"log-ends-early"})
            assert done.return_value == 1
        else:
            assert (judgement.verdict, kinds_of(judgement)) == (Verdict.UNKNOWN, set())
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
    assert (judgement.verdict, kinds_of(judgement)) == (Verdict.UNKNOWN, set())
    assert "on broker 2 ends at 7, below the high watermark 10" in str(judgement.document["reason"])


def test_a_stopped_replica_that_ends_early_has_no_tail_of_a_deposed_leader(tmp_path: Path) -> None:
    log = [batch(n, [record(b"%d" % n)]) for n in range(4)]
    for broker, length in (("1", 2), ("2", 4)):
        folder = tmp_path / "logs" / broker
        segment(folder / "orders-0", log[:length])
        (folder / "replication-offset-checkpoint").write_text("0\n1\norders 0 4\n")
        (folder / ".kafka_cleanshutdown").touch()
    judgement = judged(tmp_path / "run", asked({"A": tmp_path / "logs"}))
    assert (judgement.verdict, kinds_of(judgement)) == (Verdict.INVALID, {"log-ends-early"})
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
        assert "replica-disagreement" in kinds_of(judgement)
    else:
        assert (judgement.verdict, kinds_of(judgement)) == (Verdict.UNKNOWN, set())
        assert "in an older leader epoch than broker 2" in str(judgement.document["reason"])


def test_first_twenty_findings_are_printed_and_the_others_counted(tmp_path: Path) -> None:
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


# `verify --logs --mirror mm2`: logs of a MirrorMaker 2 that linkflap did not start, with
# records that linkflap did not write, compared by their content.


Values = Sequence[bytes]
SENT = [b"%d" % n for n in range(12)]
"""In batches of two at the source, in batches of three on the destination."""
ABORTED = b"aborted"


def source() -> list[bytes]:
    """Transactions of two records each; the last but one is aborted."""
    log, at = list[bytes](), 0
    groups = [SENT[n : n + 2] for n in range(0, len(SENT), 2)]
    for number, (values, ends) in enumerate(
        [*((v, COMMIT) for v in groups[:-1]), ([ABORTED], ABORT), (groups[-1], COMMIT)]
    ):
        data = [record(value) for value in values]
        log.append(batch(at, data, pid=7, epoch=0, seq=at - number, transactional=True))
        log.append(marker(at + len(values), ends, pid=7, epoch=0))
        at += len(values) + 1
    return log


def destination(values: Values = SENT) -> list[bytes]:
    return [
        batch(n, [record(value) for value in values[n : n + 3]]) for n in range(0, len(values), 3)
    ]


def asked_mm2(root: Path, *settings: str, mirror: str | None = "mm2", **more: Any) -> LogsRequest:
    options: dict[str, Any] = dict.fromkeys(("rate", "producer_ids", "leader_epochs"))
    options |= dict.fromkeys(("bootstrap", "properties", "promotions"), ())
    options |= {"topics": ".*", "links": ["east->west"], "preset": mirror, "settings": settings}
    options["logs"] = [f"{name}={root / name}" for name in ("east", "west")]
    request = logs_request(**options | more)
    assert request is not None
    return request


def written(root: Path, west: Sequence[bytes], *, topic: str = "east.orders") -> Path:
    """A pair whose MirrorMaker 2 renames topics (DefaultReplicationPolicy), or does not."""
    segment(root / "east" / "orders-0", source())
    segment(root / "west" / f"{topic}-0", list(west))
    for name in ("east/mm2-offset-syncs.west.internal-0", "east/heartbeats-0"):
        segment(root / name, [batch(0, [record(b"sync")])])
    for name in ("east.checkpoints.internal", "east.heartbeats", "mm2-configs.east.internal"):
        segment(root / "west" / f"{name}-0", [batch(0, [record(name.encode())])])
    segment(root / "west" / "its-own-0", [batch(0, [record(b"of west")])])
    return root


def verdict(root: Path, *settings: str, **more: Any) -> Judgement:
    return judged(root / "run", asked_mm2(root, *settings, **more))


def kinds(judgement: Judgement) -> set[str]:
    return {each.kind for each in judgement.anomalies if each.check == "order-equality"}


@pytest.mark.parametrize("topic", ["orders", "east.orders"])
def test_a_healthy_pair_is_valid(tmp_path: Path, topic: str) -> None:
    judgement = verdict(written(tmp_path, destination(), topic=topic))
    assert judgement.verdict is Verdict.VALID, judgement.document["reason"]
    (order,) = (c for c in judgement.checks if c.name == "order-equality")
    assert (order.verdict, order.examined) == (Verdict.VALID, {"west/mirrored": len(SENT)})


@pytest.mark.parametrize("topics", ["orders", r"east\.orders"])
def test_topics_are_chosen_by_either_name(tmp_path: Path, topics: str) -> None:
    judgement = verdict(written(tmp_path, destination()), topics=topics)
    assert judgement.verdict is Verdict.VALID, judgement.document["reason"]


def test_a_mirror_that_lags_is_valid(tmp_path: Path) -> None:
    assert verdict(written(tmp_path, destination(SENT[:6]))).verdict is Verdict.VALID


def swapped(values: list[bytes]) -> list[bytes]:
    values[4], values[5] = values[5], values[4]
    return values


CHANGES: dict[str, tuple[Callable[[list[bytes]], list[bytes]], set[str]]] = {
    "one is lost": (lambda v: [*v[:4], *v[5:]], {"mirror-hole"}),
    "the first is lost": (lambda v: v[1:], {"mirror-hole"}),
    "two are exchanged": (swapped, {"mirror-inversion"}),
    "one is another": (lambda v: [*v[:4], b"x", *v[5:]], {"mirror-hole", "mirror-phantom"}),
    "the last is another": (lambda v: [*v[:-1], b"x"], {"mirror-phantom"}),
    "one nobody sent": (lambda v: [*v[:4], b"x", *v[4:]], {"mirror-phantom"}),
    "an aborted one": (lambda v: [*v[:10], ABORTED, *v[10:]], {"mirrored-aborted"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_illegal_change_of_a_mirrored_log_is_found(tmp_path: Path, change: str) -> None:
    how, found = CHANGES[change]
    judgement = verdict(written(tmp_path, destination(how([*SENT]))))
    assert (judgement.verdict, kinds(judgement)) == (Verdict.INVALID, found)


def test_repeats_are_unknown_unless_exactly_once_is_promised(tmp_path: Path) -> None:
    written(tmp_path, destination([*SENT, *SENT[3:5]]))
    judgement = verdict(tmp_path)
    assert (judgement.verdict, kinds(judgement)) == (Verdict.UNKNOWN, set())
    assert "an at-least-once mirror does that around faults" in str(judgement.document["reason"])
    exactly = judged(tmp_path / "again", asked_mm2(tmp_path, "delivery=exactly-once"))
    assert (exactly.verdict, kinds(exactly)) == (Verdict.INVALID, {"mirrored-duplicate"})


def test_records_of_equal_content_are_matched_in_their_order(tmp_path: Path) -> None:
    values = [b"same", b"a", b"same", b"b", b"same", b"c"]
    for cluster, size in (("east", 2), ("west", 3)):
        log = [
            batch(n, [record(value) for value in values[n : n + size]])
            for n in range(0, len(values), size)
        ]
        segment(tmp_path / cluster / "orders-0", log)
    assert verdict(tmp_path).verdict is Verdict.VALID


AGAIN = [b"x", b"a", b"x", b"b", b"x", b"c", b"a", b"d"]


def shortened(root: Path, cluster: str, values: Values, start: int) -> None:
    """A log of batches of one record that has lost its beginning."""
    log = [batch(n, [record(value)]) for n, value in enumerate(values)][start:]
    segment(root / cluster / "orders-0", log, base_offset=start)
    (root / cluster / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {start}\n")


@pytest.mark.parametrize("west", range(7))
@pytest.mark.parametrize("east", range(7))
def test_records_of_equal_content_in_logs_that_lost_their_beginnings_are_no_anomaly(
    tmp_path: Path, east: int, west: int
) -> None:
    for cluster, start in (("east", east), ("west", west)):
        shortened(tmp_path, cluster, AGAIN, start)
    judgement = verdict(tmp_path)
    assert judgement.anomalies == []
    assert judgement.verdict in (Verdict.VALID, Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("east", "west", "found"),
    [
        *((east, west, {"mirror-hole"}) for east, west in [(0, 0), (0, 2), (1, 0)]),
        # east may have had another d, which came with what west deleted, and then again
        (1, 2, set()),
    ],
)
def test_record_lost_among_equal_contents_is_found_or_unknown(
    tmp_path: Path, east: int, west: int, found: set[str]
) -> None:
    shortened(tmp_path, "east", AGAIN, east)
    shortened(tmp_path, "west", [*AGAIN[:5], b"d"], west)
    judgement = verdict(tmp_path)
    assert kinds(judgement) == found
    assert judgement.verdict is (Verdict.INVALID if found else Verdict.UNKNOWN)


@pytest.mark.parametrize(
    ("west", "lost"),
    [
        # as many others as east deleted came before b: it is the one that east still has
        ([b"x", b"b", b"c", b"d", b"b", b"c", b"d"], True),
        # the first b may be the one that east deleted
        ([b"b", b"a", b"b", b"c", b"d"], False),
    ],
)
def test_repeat_after_as_many_others_as_were_deleted_shows_a_hole(
    tmp_path: Path, west: Values, *, lost: bool
) -> None:
    shortened(tmp_path, "east", [b"x", b"a", b"b", b"c", b"d"], 1)
    shortened(tmp_path, "west", west, 0)
    assert ("mirror-hole" in kinds(verdict(tmp_path))) == lost


def test_a_mirror_that_repeats_records_of_equal_content_is_not_accused(tmp_path: Path) -> None:
    values = AGAIN[:4]
    written(tmp_path, destination([*values[:2], *values, *AGAIN[4:]]), topic="orders")
    segment(tmp_path / "east" / "orders-0", [batch(0, [record(value) for value in AGAIN])])
    judgement = verdict(tmp_path)
    assert (judgement.verdict, judgement.anomalies) == (Verdict.UNKNOWN, [])


def test_records_after_the_end_of_the_source_are_unknown_until_a_promotion_is_named(
    tmp_path: Path,
) -> None:
    written(tmp_path, destination([*SENT, b"later", b"still later"]))
    judgement = verdict(tmp_path)
    assert (judgement.verdict, kinds(judgement)) == (Verdict.UNKNOWN, set())
    assert "east was copied before west" in str(judgement.document["reason"])
    promoted = judged(
        tmp_path / "promoted", asked_mm2(tmp_path, promotions=[f"west:east.orders-0={len(SENT)}"])
    )
    assert promoted.verdict is Verdict.VALID, promoted.document["reason"]


@pytest.mark.parametrize(
    ("left", "found"),
    [
        ([1, 2, 3], set()),
        ([1, 3], {"mirror-hole"}),
        ([1, 1, 3], {"mirror-hole"}),
    ],
    ids=["healthy", "a lost batch", "a batch in place of another"],
)
def test_a_destination_that_has_deleted_its_beginning_is_still_compared(
    tmp_path: Path, left: Sequence[int], found: set[str]
) -> None:
    written(tmp_path, destination())
    every = destination()
    log = [changed(every[number], base_offset=3 * at) for at, number in enumerate(left, start=1)]
    (tmp_path / "west" / "east.orders-0" / f"{0:020}.log").unlink()
    segment(tmp_path / "west" / "east.orders-0", log, base_offset=3)
    judgement = verdict(tmp_path)
    assert kinds(judgement) == found
    assert judgement.verdict is (Verdict.INVALID if found else Verdict.VALID)
    (order,) = (c for c in judgement.checks if c.name == "order-equality")
    assert order.examined == {"west/mirrored": 3 * len(left)}


@pytest.mark.parametrize("mirror", ["mm2", None])
def test_a_topic_of_its_own_that_has_no_record_of_the_source_is_unknown_until_that_is_said(
    tmp_path: Path, mirror: str | None
) -> None:
    segment(tmp_path / "east" / "orders-0", source())
    segment(tmp_path / "west" / "orders-0", destination([b"own %d" % n for n in range(9)]))
    judgement = verdict(tmp_path, mirror=mirror)
    assert (judgement.verdict, judgement.anomalies) == (Verdict.UNKNOWN, [])
    assert "--promotion west:orders-0=OFFSET, or leave" in str(judgement.document["reason"])
    own = asked_mm2(tmp_path, mirror=mirror, promotions=["west:orders-0=0"])
    assert judged(tmp_path / "own", own).verdict is Verdict.VALID


def test_partitions_that_a_mirror_exchanged_are_no_topic_of_its_own(tmp_path: Path) -> None:
    other = destination([b"other %d" % n for n in range(9)])
    for cluster, logs in (("east", (source(), other)), ("west", (other, destination()))):
        for number, log in enumerate(logs):
            segment(tmp_path / cluster / f"orders-{number}", log)
    judgement = verdict(tmp_path)
    assert (kinds(judgement), judgement.verdict) == ({"mirror-phantom"}, Verdict.INVALID)


def test_one_record_of_the_source_shows_that_a_topic_is_mirrored(tmp_path: Path) -> None:
    segment(tmp_path / "east" / "orders-0", source())
    segment(tmp_path / "west" / "orders-0", destination([b"own", b"other", b"third", SENT[5]]))
    judgement = verdict(tmp_path)
    assert (kinds(judgement), judgement.verdict) == (
        {"mirror-phantom", "mirror-hole"},
        Verdict.INVALID,
    )


@pytest.mark.parametrize("topic", ["orders", "east.orders"])
def test_copied_logs_of_mirror_maker_without_mirror_option_are_refused(
    tmp_path: Path, topic: str
) -> None:
    written(tmp_path, destination(), topic=topic)
    with pytest.raises(InputError, match=r"MirrorMaker 2's topic .*: add --mirror mm2"):
        verdict(tmp_path, mirror=None)


def test_records_in_other_batches_show_a_mirror_that_keeps_no_offsets(tmp_path: Path) -> None:
    segment(tmp_path / "east" / "orders-0", source())
    segment(tmp_path / "west" / "orders-0", destination())
    with pytest.raises(InputError, match=r"12 of 12 records of west .*say which it is"):
        verdict(tmp_path, mirror=None)
    named = verdict(tmp_path, mirror="exact")
    assert named.verdict is Verdict.INVALID, "the user says that it keeps bytes"


def test_a_promoted_and_compacted_destination_that_is_mostly_its_own_shows_it_too(
    tmp_path: Path,
) -> None:
    """Of what came, a cleaner left three records; all others are its own."""
    segment(tmp_path / "east" / "orders-0", source())
    left = batch(0, [record(v, delta=n) for n, v in enumerate(SENT[:9]) if n % 3], last_delta=8)
    own = [batch(12 + n, [record(b"own %d" % n)]) for n in range(100)]
    segment(tmp_path / "west" / "orders-0", [left, *own])
    with pytest.raises(InputError, match=r"6 of 106 records of west .*say which it is"):
        verdict(tmp_path, mirror=None)


def test_equal_records_written_at_other_times_are_not_mirrored_ones(tmp_path: Path) -> None:
    """A healthy pair that keeps bytes, promoted: its own clients wrote the same values."""
    both = batch(0, [record(b"ping") for _ in range(4)])
    segment(tmp_path / "east" / "orders-0", [both])
    own = [batch(4 + n, [record(b"ping", timestamp=10**6 + n)]) for n in range(100)]
    segment(tmp_path / "west" / "orders-0", [both, *own])
    judgement = verdict(tmp_path, mirror=None, promotions=["west:orders-0=4"])
    assert judgement.verdict is Verdict.VALID, judgement.document["reason"]


def test_a_compacted_source_has_other_bytes_and_the_same_batches(tmp_path: Path) -> None:
    """A mirror that keeps bytes: the source's cleaner took every other record since."""
    keys = [b"%d" % (n % 2) for n in range(6)]
    for cluster, left in (("east", [1, 3, 4, 5]), ("west", range(6))):
        some = [[n for n in (at, at + 1) if n in left] for at in (0, 2, 4)]
        log = [
            batch(2 * n, [record(b"%d" % at, key=keys[at], delta=at % 2) for at in offsets],
                pid=7, epoch=0, seq=2 * n, last_delta=1)
            for n, offsets in enumerate(some)
        ]  # fmt: skip
        segment(tmp_path / cluster / "orders-0", log)
    (tmp_path / "east" / "cleaner-offset-checkpoint").write_text("0\n1\norders 0 4\n")
    assert verdict(tmp_path, mirror=None).verdict is not Verdict.INVALID


@pytest.mark.parametrize("noted", [True, False])
@pytest.mark.parametrize("own", [5, 3])
def test_a_tombstone_that_is_gone_may_have_taken_a_record(
    tmp_path: Path, own: int, noted: bool
) -> None:
    """The destination, promoted at 3, lacks the first record. What clients deleted there nobody
    recorded: it may be what is missing before its own record at 5; at 3 nothing is missing."""
    keys = [b"a", b"b", b"c"]
    segment(tmp_path / "east" / "orders-0", [batch(0, [record(k, key=k) for k in keys])])
    left = batch(0, [record(k, key=k, delta=n) for n, k in enumerate(keys) if n], last_delta=2)
    last = batch(own, [record(b"own", key=b"d")])
    segment(tmp_path / "west" / "orders-0", [left, last])
    if noted:
        checkpoint = f"0\n1\norders 0 {own}\n"
        (tmp_path / "west" / "cleaner-offset-checkpoint").write_text(checkpoint)
    judgement = verdict(tmp_path, promotions=["west:orders-0=3"])
    if own == 3:
        assert (judgement.verdict, kinds(judgement)) == (Verdict.INVALID, {"mirror-hole"})
    else:
        assert (judgement.verdict, kinds(judgement)) == (Verdict.UNKNOWN, set())
        assert "whether its cleaner took them" in str(judgement.document["reason"])


def test_a_batch_that_is_alike_by_chance_shows_no_offsets(tmp_path: Path) -> None:
    """The first record came alone, and neither side's producer is idempotent."""
    first, rest = batch(0, [record(b"first")]), [record(b"%d" % n) for n in range(20)]
    pairs = [batch(n + 1, rest[n : n + 2]) for n in range(0, 20, 2)]
    segment(tmp_path / "east" / "orders-0", [first, *pairs])
    segment(tmp_path / "west" / "orders-0", [first, batch(1, rest[:11]), batch(12, rest[11:])])
    with pytest.raises(InputError, match=r"21 of 21 .* but 20 of them in other batches"):
        verdict(tmp_path, mirror=None)


@pytest.mark.parametrize(
    ("mirror", "said"),
    [("mm2", "cannot be found at the source by their content"), (None, "say which it is")],
)
def test_a_destination_with_times_of_its_own_is_not_accused(
    tmp_path: Path, mirror: str | None, said: str
) -> None:
    segment(tmp_path / "east" / "orders-0", source())
    west = [batch(0, [record(value) for value in SENT], log_append_time=99)]
    segment(tmp_path / "west" / "orders-0", west)
    with pytest.raises(InputError, match=f"west's orders has .*LogAppendTime.*{said}"):
        verdict(tmp_path, mirror=mirror)


@pytest.mark.parametrize("option", [{"producer_ids": "negate"}, {"leader_epochs": "keep"}])
def test_option_about_batches_implies_a_mirror_that_keeps_offsets(
    tmp_path: Path, option: dict[str, str]
) -> None:
    segment(tmp_path / "east" / "orders-0", source())
    segment(tmp_path / "west" / "orders-0", destination())
    assert verdict(tmp_path, mirror=None, **option).verdict is Verdict.INVALID


def test_the_promise_of_a_manifest(tmp_path: Path) -> None:
    manifest = tmp_path / "mirror.toml"
    manifest.write_text(
        'schema = 1\nname = "copier"\n[guarantee]\nequality = "order"\noffsets_kept = false\n'
        'producer_ids = "replaced"\ndelivery = "exactly-once"\n[commands]\nstart = ["nowhere"]\n'
    )
    written(tmp_path, destination([*SENT[:4], *SENT[5:]]))
    judgement = verdict(tmp_path, f"manifest={manifest}", mirror="command")
    assert (judgement.verdict, kinds(judgement)) == (Verdict.INVALID, {"mirror-hole"})


@pytest.mark.parametrize("changed", [False, True])
def test_records_at_the_same_offsets(tmp_path: Path, changed: bool) -> None:
    """A replicator that keeps offsets and writes batches of its own."""
    manifest = tmp_path / "mirror.toml"
    manifest.write_text(
        'schema = 1\nname = "copier"\n[guarantee]\nequality = "records"\noffsets_kept = true\n'
        'producer_ids = "replaced"\n[commands]\nstart = ["nowhere"]\n'
    )
    values = [*SENT]
    for cluster, size in (("east", 2), ("west", 3)):
        log = [
            batch(n, [record(value) for value in values[n : n + size]], pid=size, epoch=0, seq=n)
            for n in range(0, len(values), size)
        ]
        segment(tmp_path / cluster / "orders-0", log)
        values[4] = b"x" if changed else values[4]
    judgement = verdict(tmp_path, f"manifest={manifest}", mirror="command")
    found = {each.kind for each in judgement.anomalies}
    assert "record-divergence" in found if changed else not found
    assert judgement.verdict is (Verdict.INVALID if changed else Verdict.VALID), judgement.document[
        "reason"
    ]


def test_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    for words in (
        {"settings": ["nonsense=1"]},
        {"preset": "exact", "settings": ["delivery=exactly-once"]},
        {"producer_ids": "negate"},
        {"promotions": ["west:orders-0=4", "west:orders-0=4"]},
        {"preset": "command"},
    ):
        with pytest.raises(InputError):
            asked_mm2(tmp_path, **words)


def test_topics_over_several_links_have_the_name_of_their_home(tmp_path: Path) -> None:
    links = [LinkSpec.parse(name) for name in ("A->B", "B->C", "B->A")]
    request = LogsRequest(
        logs=dict.fromkeys("ABC", tmp_path), links=links, promotions={}, kind="mm2"
    )
    there = {"A": ["t", "B.t"], "B": ["t", "A.t"], "C": ["B.t", "B.A.t"]}
    assert names_of(there, request) == {
        ("A", "t"): "A.t",
        ("A", "B.t"): "B.t",
        ("B", "t"): "B.t",
        ("B", "A.t"): "A.t",
        ("C", "B.t"): "B.t",
        ("C", "B.A.t"): "A.t",
    }

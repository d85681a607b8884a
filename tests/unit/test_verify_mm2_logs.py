"""`verify --logs --mirror mm2`: logs of a MirrorMaker 2 that linkflap did not start, with records
that linkflap did not write, compared by their content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from linkflap.cli.log_options import logs_request
from linkflap.harness.capture.logs_named import LogsRequest, names_of
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import LinkSpec
from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.verdict.judge import Judgement
from tests.copied_logs import judged
from tests.kafka_log import ABORT, COMMIT, batch, marker, record, segment

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


def asked(root: Path, *settings: str, mirror: str | None = "mm2", **more: Any) -> LogsRequest:
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
    return judged(root / "run", asked(root, *settings, **more))


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
def test_what_a_mirror_must_not_do_is_found(tmp_path: Path, change: str) -> None:
    how, found = CHANGES[change]
    judgement = verdict(written(tmp_path, destination(how([*SENT]))))
    assert (judgement.verdict, kinds(judgement)) == (Verdict.INVALID, found)


def test_repeats_are_unknown_unless_exactly_once_is_promised(tmp_path: Path) -> None:
    written(tmp_path, destination([*SENT, *SENT[3:5]]))
    judgement = verdict(tmp_path)
    assert (judgement.verdict, kinds(judgement)) == (Verdict.UNKNOWN, set())
    assert "an at-least-once mirror does that around faults" in str(judgement.document["reason"])
    exactly = judged(tmp_path / "again", asked(tmp_path, "delivery=exactly-once"))
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


def test_what_comes_after_all_of_the_source_may_be_the_order_of_copying(tmp_path: Path) -> None:
    written(tmp_path, destination([*SENT, b"later", b"still later"]))
    judgement = verdict(tmp_path)
    assert (judgement.verdict, kinds(judgement)) == (Verdict.UNKNOWN, set())
    assert "east was copied before west" in str(judgement.document["reason"])
    promoted = judged(
        tmp_path / "promoted", asked(tmp_path, promotions=[f"west:east.orders-0={len(SENT)}"])
    )
    assert promoted.verdict is Verdict.VALID, promoted.document["reason"]


@pytest.mark.parametrize("topic", ["orders", "east.orders"])
def test_without_mirror_it_is_asked_for(tmp_path: Path, topic: str) -> None:
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
def test_who_says_what_a_mirror_does_with_batches_says_that_it_keeps_them(
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
        {"preset": "command"},
    ):
        with pytest.raises(InputError):
            asked(tmp_path, **words)


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

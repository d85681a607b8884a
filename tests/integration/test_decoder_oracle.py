"""Kafka as the oracle: its dump-log tool and its consumers agree with our decoders on every field
of logs that a broker wrote.

One broker writes logs with every codec: as clients compressed them (librdkafka) and as the broker
did it anew (Java), with both timestamp types, plain, idempotent and transactional, committed,
aborted and open, over several segments. Then it is stopped, so that it leaves snapshots of its
producer states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest

from linkflap.harness.log import batches, codecs, layout, records, reference
from linkflap.harness.model.topology import ClusterSpec
from linkflap.harness.runtimes.process import deploy
from linkflap.spark_verify.checks.log_model import logs
from linkflap.spark_verify.checks.log_model.logs import recompute_last_stable
from tests.on_runtimes import Events, topology
from tests.oracles.dump_log import (
    ACROSS,
    ENDINGS,
    TOPICS,
    Dumped,
    Written,
    as_dumped,
    consumed_as,
    data_of,
    got,
    record_dumped,
    states,
    write_and_read,
)

pytestmark = pytest.mark.xdist_group("decoder-oracle")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    folder = tmp_path_factory.mktemp("oracle")
    with deploy(
        topology(ClusterSpec(name="A")), folder=folder / "clusters", recorder=Events()
    ) as up:
        yield write_and_read(up.clusters["A"], folder)


def test_written_log_has_every_kind_of_batch_to_compare(written: Written) -> None:
    for topic in TOPICS:
        h = batches.scan(written.files(topic, "log")).headers
        side, codec = topic.split("-")
        assert len(written.files(topic, "log")) > 1
        assert {codecs.NAMES[int(c)] for c in h.codec[h.control == layout.DATA]} == (
            {codec} if side == "broker" else {codec, *ACROSS}
        )
        assert set(h.control.tolist()) == {layout.DATA, layout.COMMIT, layout.ABORT}
        assert set(h.log_append_time[h.control == layout.DATA].tolist()) == {side == "broker"}
        assert {bool(t) for t in h.transactional[h.producer_id >= 0]} == {True, False}
        assert len({int(p) for p in h.producer_id}) > 3
        assert written.stable[topic, 0] < written.high[topic, 0]
        assert [bool(written.files(topic, ending)) for ending in ENDINGS] == [True] * 3


def test_every_header_field_is_what_the_tool_says(written: Written) -> None:
    compared = 0
    for path, dumped in of_logs(written):
        log = batches.scan([path])
        assert not log.damage
        for row, dumped_one in enumerate(dumped.batches):
            assert_same([dumped_one], [as_dumped(log.headers, row)])
        assert len(log.headers) == len(dumped.batches)
        compared += len(dumped.batches)
    assert compared > 300


def test_every_record_is_what_the_tool_says(written: Written) -> None:
    for path, dumped in of_logs(written):
        for batch, dumped_one in zip(
            reference.batches(path.read_bytes()), dumped.records, strict=True
        ):
            assert_same(
                dumped_one, [record_dumped(batch, record) for record in reference.records(batch)]
            )


def test_control_records_are_read_as_by_kafkas_tool(written: Written) -> None:
    seen = set()
    for path, dumped in of_logs(written):
        control = batches.scan([path]).headers.control.tolist()
        for kind, dumped_one in zip(control, dumped.records, strict=True):
            if kind != layout.DATA:
                (only,) = dumped_one
                seen.add((kind, only["rest"]))
    names = {
        layout.COMMIT: " endTxnMarker: COMMIT coordinatorEpoch: 0",
        layout.ABORT: " endTxnMarker: ABORT coordinatorEpoch: 0",
    }
    assert seen == set(names.items()) | {(layout.OTHER_CONTROL, " controlType: UNKNOWN(7)")}


def test_the_fast_decoder_reads_the_same_records_as_the_slow_one(written: Written) -> None:
    for path, _ in of_logs(written):
        log = batches.scan([path])
        columns, damage = records.decode(log)
        assert not damage
        slow = [
            (i, r)
            for i, b in enumerate(reference.batches(path.read_bytes()))
            if not b.is_control
            for r in reference.records(b)
        ]
        assert columns.batch.tolist() == [i for i, _ in slow]
        assert columns.offset.tolist() == [r.offset for _, r in slow]
        assert columns.timestamp.tolist() == [r.timestamp for _, r in slow]
        assert columns.digest.tolist() == [reference.digest(r) for _, r in slow]
        assert list(zip(columns.uid.tolist(), columns.operation.tolist(), strict=True)) == [
            reference.identity(r) for _, r in slow
        ]


def test_consumers_get_the_records_that_we_read(written: Written) -> None:
    for topic in TOPICS:
        log = written.log(topic)
        every = [
            got(b, r)
            for p in written.files(topic, "log")
            for b in reference.batches(p.read_bytes())
            for r in data_of(b)
        ]
        assert_same([consumed_as(m) for m in written.uncommitted[topic]], every)
        shown = [
            e
            for e, visible in zip(every, log.visible.tolist(), strict=True)
            if visible and cast(int, e[0]) < written.stable[topic, 0]
        ]
        assert_same([consumed_as(m) for m in written.committed[topic]], shown)
        assert len(shown) < len(every)


def test_the_last_stable_offset_is_what_the_broker_said(written: Written) -> None:
    for topic in TOPICS:
        log = written.log(topic)
        assert log.replica.end == written.high[topic, 0]
        assert (
            recompute_last_stable(log, written.high[topic, 0])
            == log.stable
            == written.stable[topic, 0]
        )


def test_aborted_transactions_are_those_of_the_transaction_index(written: Written) -> None:
    for topic in TOPICS:
        log = written.log(topic)
        every = log.transactions
        ours = [
            {
                "version": "0",
                "producerId": str(every.producer_id[i]),
                "firstOffset": str(every.first[i]),
                "lastOffset": str(every.marker[i]),
                "lastStableOffset": str(recompute_last_stable(log, int(every.marker[i]) + 1)),
            }
            for i in sorted(range(len(every)), key=lambda i: int(every.marker[i]))
            if every.marker[i] != logs.NOWHERE and not every.committed[i]
        ]
        entries = [
            entry
            for path in written.files(topic, "txnindex")
            for entry in written.dumped[path].entries
        ]
        assert entries == ours
        assert len(ours) > 2


def test_producer_states_are_those_of_the_snapshots(written: Written) -> None:
    for topic in TOPICS:
        snapshots = written.files(topic, "snapshot")
        for path in snapshots:
            entries = {entry["producerId"]: entry for entry in written.dumped[path].entries}
            assert entries == states(batches.scan(written.files(topic, "log")), int(path.stem))
        assert int(snapshots[-1].stem) == written.high[topic, 0]


def assert_same(kafka: Sequence[object], ours: Sequence[object]) -> None:
    """Reports in one line where two lists differ; pytest takes minutes to compare long values."""
    parted = next(
        (n for n, (one, other) in enumerate(zip(kafka, ours, strict=False)) if one != other), None
    )
    if parted is not None:
        pytest.fail(
            f"at {parted} Kafka has {str(kafka[parted])[:1000]} and we have "
            f"{str(ours[parted])[:1000]}",
            pytrace=False,
        )
    assert len(kafka) == len(ours)


def of_logs(written: Written) -> Iterator[tuple[Path, Dumped]]:
    return ((path, dumped) for path, dumped in written.dumped.items() if path.suffix == ".log")

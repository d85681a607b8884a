"""Open transactions of a mirrored log, ended by WriteTxnMarkers to the brokers that lead after the
hand-over."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.model.protocols import Broker, Deployment
from linkflap.harness.model.wait import until
from linkflap.harness.wire.offsets import quiet
from tests.shadows import (
    TOPIC,
    TOPIC_PARTITIONS,
    Writer,
    assert_equal,
    drained,
    ends,
    headers,
    make_topic,
    own_write,
    shadow,
)

pytestmark = pytest.mark.linkflap(topology="A->B")


def begun(bootstrap: str, name: str, partitions: range) -> Producer:
    """A transaction with one record in each of these partitions, left open."""
    producer = Producer(quiet(bootstrap) | {"transactional.id": name, "linger.ms": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    for number in partitions:
        producer.produce(TOPIC, b"open", partition=number)
    producer.flush(60)
    return producer


def aborts(broker: Broker, tp: tuple[str, int], above: int) -> list[int]:
    found = headers(broker, tp, above=above)
    return [
        offset
        for offset, control in zip(found["base_offset"], found["control"], strict=True)
        if control == 0
    ]


def test_what_was_open_is_aborted_once_also_when_the_shadow_died_before_it_noted_that(
    linkflap_deployment: Deployment,
) -> None:
    up = linkflap_deployment
    a, b = (up.clusters[name].bootstrap for name in "AB")
    make_topic(up, "A")
    mirror = shadow(up, "A->B", open_transactions="write-txn-markers")
    mirror.start()
    Writer(a).write(4)
    left = [begun(a, "both", range(2)), begun(a, "one", range(1))]
    drained(mirror)
    assert (
        ends(up.clusters["B"], "stable")
        == ends(up.clusters["A"], "stable")
        != ends(up.clusters["B"])
    )
    mirror.stop()
    promoted = mirror.promotion()
    assert promoted == ends(up.clusters["A"])
    assert_equal(up, "A", "B", below=promoted)
    on_disk = {tp: aborts(up.clusters["B"].brokers[1], tp, promoted[tp]) for tp in TOPIC_PARTITIONS}
    assert on_disk == {
        TOPIC_PARTITIONS[0]: [promoted[TOPIC_PARTITIONS[0]], promoted[TOPIC_PARTITIONS[0]] + 1],
        TOPIC_PARTITIONS[1]: [promoted[TOPIC_PARTITIONS[1]]],
    }
    noted = {tp: mirror.notes().partitions[tp[0]][tp[1]].appended for tp in TOPIC_PARTITIONS}
    assert {tp: [offset for offset, _ in rows] for tp, rows in noted.items()} == on_disk
    assert all(what.startswith("ABORT of producer") for rows in noted.values() for _, what in rows)
    assert ends(up.clusters["B"], "stable") == ends(up.clusters["B"])
    own = begun(b, "own", range(2))
    end = ends(up.clusters["B"])
    # As if it had been killed between the last marker and its journal entry.
    folder = mirror.log.parent
    journal = Journal(folder)
    journal.notes.phase = "handing-over"
    for number in range(2):
        journal.partition(TOPIC, number).appended = []
    journal.save()
    mirror.stop()
    assert {
        tp: mirror.notes().partitions[tp[0]][tp[1]].appended for tp in TOPIC_PARTITIONS
    } == noted
    assert ends(up.clusters["B"]) == end
    own.commit_transaction(60)  # none of them was taken for one of the source's
    # markers are written after the commit was acknowledged
    after = {tp: offset + 1 for tp, offset in end.items()}
    until(
        lambda: ends(up.clusters["B"], "stable") == after,
        within=120,
        every=0.1,
        what="own to have its markers",
    )
    assert own_write(b) == end[TOPIC_PARTITIONS[0]] + 1
    assert mirror.notes().phase == "handed-over"
    del left

"""AS1: the source's retention overtakes a mirror that is down; what a byte-for-byte mirror makes of
it, on the shadow."""

from __future__ import annotations

from functools import partial

from confluent_kafka import TopicPartition

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.model.wait import until

BEFORE, DURING, LEFT = 10, 20, 5


def _overtaken(bench: Bench, *, delete: bool) -> Observation:
    """DeleteRecords does at once what retention does in time."""
    topic = bench.topic()
    bench.write(topic, [b"before %d" % n for n in range(BEFORE)])
    mirror = bench.mirror("shadow")
    mirror.start()
    bench.drained(mirror)
    mirror.crash()
    bench.write(topic, [b"during %d" % n for n in range(DURING)])
    first = BEFORE + DURING - LEFT
    if delete:
        admin = bench.admin()  # its answers end with it
        admin.delete_records([TopicPartition(topic, 0, first)])
        until(
            lambda: bench.bound("start", topic) == first,
            within=WITHIN,
            what="A's log start to move",
        )
    mirror.restart()
    bench.write(topic, [b"last"])
    bench.drained(mirror)
    end = BEFORE + DURING + 1
    until(
        lambda: bench.bound("high", topic, cluster="B") == end,
        within=2 * WITHIN,
        what="B to have the last record",
        every=0.3,
    )
    read = [
        (offset, value.decode())
        for offset, value in bench.read(topic, "read_uncommitted", cluster="B")
    ]
    values = [value for _, value in read]
    missing = [n for n in range(DURING) if f"during {n}" not in values]
    facts = {
        "A_log_start": bench.bound("start", topic),
        "B_log_start": bench.bound("start", topic, cluster="B"),
        "missing_on_B": missing,
        "offset_of_the_last_on_B": next(
            (offset for offset, value in read if value == "last"), None
        ),
        "mirror_alive": mirror.alive,
        "lag": mirror.lag(),
    }
    return Observation(
        shown=bool(missing) and facts["lag"] == 0 and facts["mirror_alive"] is True, facts=facts
    )


CASE = Case(
    name="AS1-retention-overtakes",
    title=(
        "Retention that overtakes a mirror during an outage leaves the destination without those "
        "records, and the lag is 0"
    ),
    kind="proposal",
    claim_text=(
        "When the offset that the mirror wants is gone at the source, the destination's log begins "
        "anew where the source's does: offsets stay equal, and what was acknowledged in between is "
        "on neither side, which only the log starts say."
    ),
    sources=(
        (
            "KIP-1279 discussion, AS1 (Andrew Schofield): gaps by retention; B restarts at A's log "
            "start"
        ),
    ),
    expected=(Expected(shows=True, since="3.9.1", basis="runs"),),
    schedule=(
        f"1. {BEFORE} records are mirrored; 2. kill -9 of the mirror; 3. {DURING} records; 4. the "
        f"log start passes all but {LEFT}; 5. it starts"
    ),
    reproduced=(
        f"{DURING - LEFT} records are missing on the destination, the mirror runs, and its lag is 0"
    ),
    control_text="the same outage without retention: every record arrives",
    refuted="every record, or a mirror that reports the hole",
    topology=PAIR,
    claim=partial(_overtaken, delete=True),
    control=partial(_overtaken, delete=False),
    oldest="3.9.1",
    apart=True,
)

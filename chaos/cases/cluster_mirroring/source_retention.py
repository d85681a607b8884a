"""AS1: the source's retention overtakes a mirror that is down; what a byte-for-byte mirror makes of
it, on the shadow."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.model.wait import until

BEFORE, DURING, LEFT = 10, 20, 5


@case("AS1-retention-overtakes", PAIR, claim={"delete": True}, control={"delete": False})
def source_retention(bench: Bench, *, delete: bool) -> Observation:
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

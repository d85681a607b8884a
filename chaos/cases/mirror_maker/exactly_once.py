"""KIP-618: with exactly-once source support, a killed worker of MirrorMaker 2 copies no record
twice."""

from __future__ import annotations

from collections import Counter

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.model.wait import until

BEFORE, DURING = 10, 20
LAST = "last"


@case(
    "KIP-618-exactly-once",
    PAIR,
    claim={"delivery": "exactly-once"},
    control={"delivery": "at-least-once"},
)
def exactly_once(bench: Bench, delivery: str) -> Observation:
    """Kills the worker as soon as the copies are on the target, before Connect has written its
    source offsets."""
    topic = bench.topic()
    bench.write(topic, [b"before %d" % n for n in range(BEFORE)])
    mirror = bench.mirror("mm2", delivery=delivery)
    mirror.start()
    bench.led(topic, cluster="B")

    def read() -> list[str]:
        return [value.decode() for _, value in bench.read(topic, cluster="B")]

    until(lambda: len(read()) == BEFORE, within=2 * WITHIN, what="B to have all", every=0.2)
    bench.drained(mirror)
    high = bench.bound("high", topic, cluster="B")
    bench.write(topic, [b"during %d" % n for n in range(DURING)])
    until(
        lambda: bench.bound("high", topic, cluster="B") >= high + DURING,
        within=WITHIN,
        what="B to have the copies",
        every=0.01,
    )
    mirror.crash()
    mirror.restart()
    bench.write(topic, [LAST.encode()])
    until(
        lambda: LAST in read(), within=2 * WITHIN, what="the last record to be mirrored", every=0.3
    )
    found = Counter(read())
    mirror.stop()
    twice = sorted(value for value, count in found.items() if count > 1)
    missing = [n for n in range(DURING) if f"during {n}" not in found]
    facts = {
        "read_committed_on_B": sum(found.values()),
        "more_than_once": twice[:5],
        "missing_on_B": missing,
    }
    return Observation(shown=bool(twice or missing), facts=facts)

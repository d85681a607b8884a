"""With its default isolation level, MirrorMaker 2 turns the source's aborted records into plain
ones."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.model.wait import until


@case(
    "MM2-isolation",
    PAIR,
    claim={"isolation": "read_uncommitted"},
    control={"isolation": "read_committed"},
)
def isolation(bench: Bench, isolation: str) -> Observation:
    """With its default isolation level, MirrorMaker 2 turns the source's aborted records into plain
    ones."""
    topic = bench.topic()
    mirror = bench.mirror("mm2", isolation=isolation)
    mirror.start()
    writer = bench.transactional()
    for value, commit in ((b"kept", True), (b"aborted", False), (b"last", True)):
        writer.begin()
        writer.send(topic, value)
        writer.flush()
        writer.commit() if commit else writer.abort()
    there = [value.decode() for _, value in bench.read(topic)]
    bench.led(topic, cluster="B")
    read: list[str] = []

    def arrived() -> bool:
        nonlocal read
        read = [value.decode() for _, value in bench.read(topic, cluster="B")]
        return "last" in read

    until(
        arrived,
        within=2 * WITHIN,
        what="the last record to be mirrored",
        every=0.2,
        state=lambda: read,
    )
    mirror.stop()
    return Observation(
        shown="aborted" in read, facts={"A_read_committed": there, "B_read_committed": read}
    )

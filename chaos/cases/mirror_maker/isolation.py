"""With its default isolation level, MirrorMaker 2 turns the source's aborted records into plain
ones."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR
from linkflap.harness.model.wait import until


def _mirrored(bench: Bench, isolation: str) -> Observation:
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


CASE = Case(
    name="MM2-isolation",
    title=(
        "With its default isolation level, MirrorMaker 2 copies aborted records, which "
        "read_committed then gets on the target"
    ),
    kind="limit",
    claim_text=(
        "MirrorMaker 2's consumer reads with isolation.level=read_uncommitted unless the user "
        "sets another: the source's aborted records become plain records of the target."
    ),
    sources=(
        "Kafka documentation, Geo-Replication; consumer default isolation.level",
        "KIP-1279 discussion, MM6 (Mickael Maison)",
    ),
    expected=(Expected(shows=True, basis="runs"),),
    schedule=(
        "1. one record committed, one aborted, one committed; 2. MirrorMaker 2 copies; 3. a "
        "read_committed consumer of B reads"
    ),
    reproduced="the consumer of B gets the aborted record, and that of A does not",
    control_text=(
        "the same with <source>.consumer.isolation.level=read_committed: both get only the "
        "committed records"
    ),
    refuted="no aborted record on B",
    topology=PAIR,
    claim=partial(_mirrored, isolation="read_uncommitted"),
    control=partial(_mirrored, isolation="read_committed"),
    apart=True,
)

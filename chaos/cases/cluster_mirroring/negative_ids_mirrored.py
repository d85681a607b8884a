"""VK4 end to end: a mirror that negates producer ids, and what read_committed consumers of the
destination get."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import PAIR


@case("VK4-mirrored", PAIR, claim={"ids": "negate"}, control={"ids": "jump"})
def negative_ids_mirrored(bench: Bench, ids: str) -> Observation:
    """VK4 end to end: a mirror that negates producer ids, and what read_committed consumers of the
    destination get."""
    topic = bench.topic()
    mirror = bench.mirror("shadow", producer_ids=ids)
    mirror.start()
    writer = bench.transactional()
    for value, commit in ((b"kept", True), (b"aborted", False)):
        writer.begin()
        writer.send(topic, value)
        writer.flush()
        writer.commit() if commit else writer.abort()
    bench.drained(mirror)
    bench.led(topic, cluster="B")
    there = [value.decode() for _, value in bench.read(topic)]
    read = [value.decode() for _, value in bench.read(topic, cluster="B")]
    return Observation(
        shown="aborted" in read, facts={"A_read_committed": there, "B_read_committed": read}
    )

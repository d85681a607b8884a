"""VK4 end to end: a mirror that negates producer ids, and what read_committed consumers of the
destination get."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import PAIR


def _mirrored(bench: Bench, ids: str) -> Observation:
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


CASE = Case(
    name="VK4-mirrored",
    title=(
        "Behind a mirror that negates producer ids a read_committed consumer gets aborted records"
    ),
    kind="proposal",
    claim_text=(
        "The destination's brokers and consumers take negative ids for none: aborted records are "
        "plain ones there."
    ),
    sources=("KIP-1279 discussion, VK4 and VK8 (Vaquar Khan, February 2026)",),
    expected=(Expected(shows=True, since="3.9.1", basis="runs"),),
    schedule=(
        "1. a transaction is committed, another aborted; 2. both are mirrored with -(pid + 2); 3. a"
        " consumer of B reads"
    ),
    reproduced="read_committed on B gets the aborted record, and on A it does not",
    control_text="the same mirror with ids kept: read_committed on B gets what it gets on A",
    refuted="the aborted record hidden on B",
    topology=PAIR,
    claim=partial(_mirrored, ids="negate"),
    control=partial(_mirrored, ids="jump"),
    oldest="3.9.1",
    apart=True,
)

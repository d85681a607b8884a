"""linkflap.deploy with real brokers: faults as context managers, and a test's own clients judged by
every check."""

from __future__ import annotations

import asyncio
from pathlib import Path

import confluent_kafka
import pytest

import linkflap
from linkflap import World
from linkflap.harness.model.events import WireRecorded, of_kind
from linkflap.harness.model.wait import until
from linkflap.harness.rundir import RunReader

pytestmark = pytest.mark.spark


def transact(producer: confluent_kafka.Producer, records: int, *, commit: bool = True) -> None:
    producer.begin_transaction()
    for number in range(records):
        producer.produce("A.orders", f"value {number}", key=f"key {number}")
    if commit:
        producer.commit_transaction()
    else:
        # Without a partition that was added to the transaction, the abort is fatal: case
        # librdkafka-4849.
        assert producer.flush(60) == 0
        producer.abort_transaction()


def writer(world: linkflap.World, cluster: str) -> linkflap.Producer:
    producer = linkflap.Producer(
        {"bootstrap.servers": world.cluster(cluster).bootstrap, "transactional.id": "orders"}
    )
    producer.init_transactions()
    return producer


async def by_asyncio(world: linkflap.World, records: int) -> None:
    """Writes in a transaction and reads again, with the clients for asyncio."""
    where = {"bootstrap.servers": world.cluster("A").bootstrap}
    async with linkflap.AIOProducer({**where, "transactional.id": "asyncio"}) as producer:
        await producer.init_transactions()
        await producer.begin_transaction()
        sent = [await producer.produce("A.orders", b"asyncio") for _ in range(records)]
        await producer.flush()
        assert {(await each).topic() for each in sent} == {"A.orders"}
        await producer.commit_transaction()
    reads = {**where, "group.id": "asyncio", "auto.offset.reset": "earliest"}
    async with linkflap.AIOConsumer(reads) as consumer:
        await consumer.subscribe(["A.orders"])
        read = 0
        async with asyncio.timeout(120):
            while read < records:
                read += sum(m.value() == b"asyncio" for m in await consumer.consume(100, 0.2))
        await consumer.commit(asynchronous=False)


@pytest.mark.linkflap(topics={"A.orders": 2}, mirror="shadow")
def test_writes_reads_and_faults_of_a_test_are_judged(linkflap_world: World) -> None:
    world = linkflap_world
    producer = writer(world, "A")
    plain = linkflap.Producer({"bootstrap.servers": world.cluster("A").bootstrap})
    consumer = linkflap.Consumer(
        {
            "bootstrap.servers": world.cluster("A").bootstrap,
            "group.id": "mine",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["A.orders"])
    with world.link("A->B").cut() as cut:
        assert cut.bite.bit
        for number in range(10):
            transact(producer, 5, commit=number % 5 != 4)
            plain.produce("A.orders", b"plain")
    with world.mirror("A->B").kill():
        assert not world.mirror("A->B").alive
        transact(producer, 5)
    batch = [{"value": b"plain"}, {"value": b"too large" * 1_000_000}]
    assert plain.produce_batch("A.orders", batch) == 1
    assert [message.get("_error") is None for message in batch] == [True, False]
    assert plain.flush(60) == 0
    asyncio.run(by_asyncio(world, 7))
    read: set[tuple[int | None, int | None]] = set()

    def all_read() -> bool:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            read.add((message.partition(), message.offset()))
        return len(read) >= 8 * 5 + 10 + 5 + 1 + 7

    until(
        all_read,
        within=120,
        every=0.0,
        what="the consumer to read everything",
        state=lambda: len(read),
    )
    consumer.commit(asynchronous=False)
    world.mirror("A->B").wait()
    with world.failover("A->B"):
        transact(writer(world, "B"), 5)
    with pytest.raises(
        linkflap.InputError,
        match=r"there is no link 'A->C' here; known: \*->A, \*->B, A->B, B->A",
    ):
        world.link("A->C")
    with pytest.raises(linkflap.InputError, match="cannot be applied"):
        world.fault("broker-kill", "A/9")
    judged = world.verify()
    assert judged.valid, judged.why
    for name in (
        "lost-write",
        "unseen",
        "provenance",
        "poll-continuity",
        "byte-equality",
        "commit-aborted",
        "group-offsets",
    ):
        assert judged.checks[name].verdict == "valid", name
    assert judged.checks["lost-write"].examined == {"A/native": 63, "B/native": 5}
    assert [failover.kind for failover in judged.failovers] == ["planned"]
    assert RunReader(world.folder).run.status == "finished"
    own = [path.stem for path in (world.folder / "polls").iterdir() if "consumer" in path.stem]
    assert len(own) == 2, "the consumer for asyncio has a history too"
    with pytest.raises(linkflap.InputError, match="the clusters are stopped"):
        world.link("A->B")


@pytest.mark.linkflap(
    topology="A{tls+scram}", topics={"A.orders": 2}, readers=False, record="wire", group="billing"
)
def test_promises_to_any_client_are_recorded_on_the_wire(linkflap_world: World) -> None:
    world, address = linkflap_world, linkflap_world.recorded("A")
    where = {"bootstrap.servers": address, **world.entry("A", "client").librdkafka()}
    with pytest.raises(linkflap.InputError, match=r"with another client at world\.recorded"):
        writer(world, "A")
    producer = confluent_kafka.Producer({**where, "transactional.id": "orders"})
    producer.init_transactions()
    with world.fault("program-unanswered", "A", api="EndTxn") as unanswered:
        for number in range(5):
            transact(producer, 20, commit=number != 3)
    assert unanswered.bite.bit
    reader = confluent_kafka.Consumer(
        {
            **where,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # else the number of commits depends on the time
        }
    )
    reader.subscribe(["A.orders"])
    read: list[confluent_kafka.Message] = []

    def all_read() -> bool:
        read.extend(reader.consume(80, 1.0))
        return len(read) >= 80

    until(all_read, within=120, what="all that was committed to be read", state=lambda: len(read))
    reader.commit(asynchronous=False)
    reader.close()
    judged = world.verify()
    assert judged.valid, judged.why
    events, _ = RunReader(world.folder).events()
    (wire,) = of_kind(events, WireRecorded)
    assert wire.delivered == 80  # a read_committed consumer is not given the aborted transaction
    assert wire.committed == 2  # one offset of each partition
    assert judged.checks["lost-write"].examined["A/native"] == 80
    assert not judged.document["by_bytes"]


@pytest.mark.nightly
def test_a_block_that_raises_leaves_a_failed_run_and_its_own_error(tmp_path: Path) -> None:
    deployed = linkflap.deploy("A->B", topics=["A.orders"], folder=tmp_path / "run")
    world = deployed.__enter__()
    linkflap.Producer({"bootstrap.servers": world.cluster("A").bootstrap}).produce(
        "A.orders", b"lost?"
    )
    mine = ZeroDivisionError("of the block")
    assert not deployed.__exit__(ZeroDivisionError, mine, None)
    run = RunReader(tmp_path / "run").run
    assert run.status == "failed"
    assert "ZeroDivisionError: of the block" in run.error
    assert world.verify().verdict == "unknown"


@pytest.mark.nightly
def test_records_that_no_history_has_are_found(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    with linkflap.deploy("A->B", topics=["A.orders"], folder=tmp_path / "run") as world:
        recorded = linkflap.Producer({"bootstrap.servers": world.cluster("A").bootstrap})
        recorded.produce("A.orders", b"mine", partition=0)
        assert recorded.flush(60) == 0
        stranger = Producer({"bootstrap.servers": world.cluster("A").bootstrap})
        stranger.produce("A.orders", b"nobody's", partition=0)
        assert stranger.flush(60) == 0
    judged = world.verify()
    assert judged.found("stranger"), judged.why

"""Writes payments in transactions with aiokafka, or reads them in a group where it is given a topic
to read. It knows nothing of linkflap but the address and the topic."""

import asyncio
import itertools
import os
import signal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

BROKERS = os.environ["LINKFLAP_BOOTSTRAP"]


async def write(topic, stop):
    producer = AIOKafkaProducer(
        bootstrap_servers=BROKERS,
        transactional_id="payments",
        transaction_timeout_ms=10000,
        linger_ms=5,
    )
    await producer.start()
    for number in itertools.count():
        if stop.is_set():
            break
        await producer.begin_transaction()
        for part in range(20):
            await producer.send(topic, f"payment {number}.{part}".encode())
        await producer.flush()
        if number % 5 == 4:
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
    await producer.stop()


async def read(topic, stop):
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=BROKERS,
        group_id="ledger",
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    total = 0
    while not stop.is_set():
        payments = await consumer.getmany(timeout_ms=200)
        total += sum(map(len, payments.values()))
        if payments:
            try:
                await consumer.commit()
            except KafkaError as error:
                print(error, flush=True)  # it commits with the next ones
    print(f"{total} payments", flush=True)
    await consumer.stop()


async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    if topic := os.environ["LINKFLAP_READS"]:
        await read(topic, stop)
    else:
        await write(os.environ["LINKFLAP_WRITES"], stop)


asyncio.run(main())

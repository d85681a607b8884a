"""Reads payments in a group with confluent-kafka, adds them up, and commits what it has added."""

import os
import signal

from confluent_kafka import Consumer, KafkaException

stopping = False


def stop(*_):
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)
consumer = Consumer(
    {
        "bootstrap.servers": os.environ["LINKFLAP_BOOTSTRAP"],
        "group.id": "ledger",
        "group.instance.id": "ledger-1",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": 6000,
    }
)
consumer.subscribe(os.environ["LINKFLAP_READS"].split(","))
total = 0
while not stopping:
    payments = [each for each in consumer.consume(500, timeout=0.2) if each.error() is None]
    if payments:
        total += len(payments)
        try:
            consumer.commit(asynchronous=False)
        except KafkaException as error:
            print(error, flush=True)  # it commits with the next ones
print(f"{total} payments", flush=True)
consumer.close()

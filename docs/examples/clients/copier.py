"""Writes a payment for every order with confluent-kafka. It has two bugs, which its test finds: it
commits its offsets before it has written anything, and it reads uncommitted."""

import os
import signal
import time

from confluent_kafka import Consumer, Producer

stopping = False


def stop(*_):
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)
address = {"bootstrap.servers": os.environ["LINKFLAP_BOOTSTRAP"], "client.id": "copier"}
payments = Producer(address | {"enable.idempotence": True, "linger.ms": 5})
orders = Consumer(
    address
    | {
        "group.id": "copier",
        "group.instance.id": "copier-1",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_uncommitted",
        "session.timeout.ms": 6000,
    }
)
orders.subscribe(os.environ["LINKFLAP_READS"].split(","))
while not stopping:
    batch = [each for each in orders.consume(500, timeout=0.5) if each.error() is None]
    if not batch:
        continue
    orders.commit(asynchronous=False)
    time.sleep(5.0)  # it works on them
    for order in batch:
        payments.produce(
            os.environ["LINKFLAP_WRITES"],
            b"paid " + (order.value() or b""),
            key=order.key(),
            headers=order.headers(),
        )
    payments.flush()
orders.close()

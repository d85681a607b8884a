"""An application: every order becomes one payment, exactly once. The offsets of its group are part of each transaction.

It passes the header `linkflap` of its inputs on, by which linkflap recognises what an output was made from.
"""

import os
import signal

from confluent_kafka import Consumer, Producer

GROUP = "payments"
READING = {"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
WRITING = {"transactional.id": "payments", "transaction.timeout.ms": 10000}
stopping = False


def stop(*_):
    global stopping
    stopping = True


def main():
    signal.signal(signal.SIGTERM, stop)
    bootstrap = {"bootstrap.servers": os.environ["LINKFLAP_BOOTSTRAP"]}
    orders, payments = Consumer(bootstrap | READING), Producer(bootstrap | WRITING)
    payments.init_transactions()
    orders.subscribe(os.environ["LINKFLAP_READS"].split(","))
    while not stopping:
        batch = [record for record in orders.consume(100, timeout=0.2) if record.error() is None]
        if not batch:
            continue
        payments.begin_transaction()
        for order in batch:
            payments.produce(os.environ["LINKFLAP_WRITES"], b"paid " + (order.key() or b""), order.key(), headers=order.headers())
        payments.send_offsets_to_transaction(orders.position(orders.assignment()), orders.consumer_group_metadata())
        payments.commit_transaction()
    orders.close()


if __name__ == "__main__":
    main()

"""An application: every order becomes one payment, exactly once. The offsets of its group are part of each transaction.

It passes the header `linkflap` of its inputs on, by which linkflap recognises what an output was made from. Two arguments are
for its tests:
  --offsets apart   the planted bug: offsets are committed by themselves, after the transaction
  --fail-point      it stands still once, when a transaction has been committed, so that it can be killed at that moment
"""

import os
import signal
import sys
from pathlib import Path

from confluent_kafka import Consumer, Producer

GROUP = "payments"
READING = {
    "group.id": GROUP,
    "group.instance.id": "payments-1",  # so that one that was started again gets its partitions back at once
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
}
WRITING = {"transactional.id": "payments", "transaction.timeout.ms": 10000}
APART = "apart" in sys.argv
stopping = False


def stop(*_):
    global stopping
    stopping = True


def fail_point():
    """Once, whatever is started again: `when = "program-stopped"` waits for it."""
    mark = Path(os.environ["LINKFLAP_ADDRESS_FILE"]).with_name("stood-still")
    if "--fail-point" in sys.argv and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGSTOP)


def cluster():
    """How to enter the cluster where it is now; of a secured one a file says so."""
    file = os.environ.get(f"LINKFLAP_CONFIG_{os.environ['LINKFLAP_CLUSTER']}")
    lines = Path(file).read_text().splitlines() if file else []
    return dict(line.split("=", 1) for line in lines) | {"bootstrap.servers": os.environ["LINKFLAP_BOOTSTRAP"]}


def main():
    signal.signal(signal.SIGTERM, stop)
    orders, payments = Consumer(cluster() | READING), Producer(cluster() | WRITING)
    payments.init_transactions()
    orders.subscribe(os.environ["LINKFLAP_READS"].split(","))
    while not stopping:
        batch = [record for record in orders.consume(100, timeout=0.2) if record.error() is None]
        if not batch:
            continue
        payments.begin_transaction()
        for order in batch:
            payments.produce(os.environ["LINKFLAP_WRITES"], b"paid " + (order.key() or b""), order.key(), headers=order.headers())
        if not APART:
            payments.send_offsets_to_transaction(orders.position(orders.assignment()), orders.consumer_group_metadata())
        payments.commit_transaction()
        fail_point()
        if APART:
            orders.commit(offsets=orders.position(orders.assignment()), asynchronous=False)
    orders.close()


if __name__ == "__main__":
    main()

"""Writes payments in transactions with confluent-kafka, and knows nothing of linkflap but the
address and the topic."""

import itertools
import os
import signal

from confluent_kafka import KafkaException, Producer

stopping = False


def stop(*_):
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)
producer = Producer(
    {
        "bootstrap.servers": os.environ["LINKFLAP_BOOTSTRAP"],
        "transactional.id": "payments",
        "transaction.timeout.ms": 10000,
        "linger.ms": 5,
    }
)
producer.init_transactions()
for number in itertools.count():
    if stopping:
        break
    try:
        producer.begin_transaction()
        for part in range(20):
            producer.produce(os.environ["LINKFLAP_WRITES"], f"payment {number}.{part}")
            producer.poll(0)
        if number % 5 == 4:
            producer.flush()
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    except KafkaException as error:
        if not error.args[0].txn_requires_abort():
            raise
        producer.abort_transaction()

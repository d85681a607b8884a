"""A test of an application, as any test runner would start it: it writes orders in transactions,
some of which it aborts, reads them in a group, and fails if one is missing."""

import os
import sys

from confluent_kafka import Consumer, Producer

BROKERS = os.environ["LINKFLAP_BOOTSTRAP"]
TOPIC = os.environ["LINKFLAP_WRITES"]
TRANSACTIONS = 200

producer = Producer({"bootstrap.servers": BROKERS, "transactional.id": "orders"})
producer.init_transactions()
written = set()
for number in range(TRANSACTIONS):
    producer.begin_transaction()
    orders = [f"order {number}.{part}" for part in range(10)]
    for order in orders:
        producer.produce(TOPIC, order)
    producer.flush()
    if number % 5 == 4:
        producer.abort_transaction()
    else:
        producer.commit_transaction()
        written.update(orders)

consumer = Consumer(
    {"bootstrap.servers": BROKERS, "group.id": "billing", "auto.offset.reset": "earliest"}
)
consumer.subscribe([TOPIC])
read = set()
while read != written:
    message = consumer.poll(30)
    if message is None:
        break
    if message.error() is None:
        read.add(message.value().decode())
consumer.close()
print(f"{len(written)} orders written, {len(written - read)} of them not read")
sys.exit(read != written)

"""A test of an application, as any test runner would start it: it makes its topics, writes orders
and their invoices in transactions, some of which it aborts, reads the orders in a group, and fails
if one is missing. It knows nothing of linkflap but an address."""

import os
import sys

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

BROKERS = os.environ["LINKFLAP_BOOTSTRAP"]
TRANSACTIONS = 200

admin = AdminClient({"bootstrap.servers": BROKERS})
missing = {"orders", "invoices"} - admin.list_topics(timeout=30).topics.keys()
for name in missing:
    admin.create_topics([NewTopic(name, 2)])[name].result()
producer = Producer({"bootstrap.servers": BROKERS, "transactional.id": "orders"})
producer.init_transactions()
written = set()
for number in range(TRANSACTIONS):
    producer.begin_transaction()
    orders = [f"order {number}.{part}" for part in range(10)]
    for order in orders:
        producer.produce("orders", order)
        producer.produce("invoices", f"invoice of {order}")
    producer.flush()
    if number % 5 == 4:
        producer.abort_transaction()
    else:
        producer.commit_transaction()
        written.update(orders)

consumer = Consumer(
    {"bootstrap.servers": BROKERS, "group.id": "billing", "auto.offset.reset": "earliest"}
)
consumer.subscribe(["orders"])
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

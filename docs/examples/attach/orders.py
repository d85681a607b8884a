"""A program that knows nothing of linkflap but two variables: it writes orders until it is asked to
stop."""

import itertools
import os
import signal
import time

from confluent_kafka import Producer

running = True


def stop(*_):
    global running
    running = False


signal.signal(signal.SIGTERM, stop)
bootstrap = os.environ["LINKFLAP_BOOTSTRAP"]
producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
numbers = itertools.count()
while running:
    for number in itertools.islice(numbers, 20):
        producer.produce(os.environ["LINKFLAP_WRITES"], f"order {os.getpid()}.{number}")
    producer.flush(1)
    time.sleep(0.02)
producer.flush(30)

"""A program that knows nothing of linkflap but two variables: it writes orders, and goes on until it is asked to stop."""

import os
import signal
import time

from confluent_kafka import Producer

running = True


def stop(*_):
    global running
    running = False


signal.signal(signal.SIGTERM, stop)
producer = Producer({"bootstrap.servers": os.environ["LINKFLAP_BOOTSTRAP"], "enable.idempotence": True})
number = 0
while running:
    for number in range(number, number + 20):
        producer.produce(os.environ["LINKFLAP_WRITES"], f"order {os.getpid()}.{number}")
    number += 1
    producer.flush(1)
    time.sleep(0.02)
producer.flush(30)

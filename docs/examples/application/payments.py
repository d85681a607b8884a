"""An application: every order becomes one payment, exactly once. The offsets of its group are part
of each transaction.

Its clients are Kafka's own, in a JVM that py4j (which Spark brings) starts and calls. It passes the
headers of its inputs on: by the one named `linkflap`, linkflap recognises what an output was made
from. Three arguments are for its tests:
  --offsets apart   the planted bug: offsets are committed by themselves, after the transaction
  --fail-point      it stands still once, when a transaction has been committed, so that it can be
                    killed at that moment
  --stuck-after N   another planted bug: once it has made N payments, it polls no more
"""

import os
import signal
import sys
import time
from pathlib import Path

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

READING = {
    "group.id": "payments",
    # so that one that was started again gets its partitions back at once
    "group.instance.id": "payments-1",
    "enable.auto.commit": "false",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "max.poll.records": "100",
    "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
    "value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
}
WRITING = {
    "transactional.id": "payments",
    "transaction.timeout.ms": "10000",
    "key.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
    "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
}
APART = "apart" in sys.argv
STUCK_AFTER = (
    int(sys.argv[sys.argv.index("--stuck-after") + 1]) if "--stuck-after" in sys.argv else None
)
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


def jvm():
    """A JVM with Kafka's clients, which ends with this process: linkflap names a Java and the jars
    (library = "java")."""
    (jar,) = Path(pyspark.__file__).parent.glob("jars/py4j-*.jar")
    port, token = launch_gateway(
        jarpath=str(jar),
        classpath=os.environ["LINKFLAP_CLASSPATH"],
        java_path=os.environ["LINKFLAP_JAVA"],
        javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"],
        die_on_exit=True,
        enable_auth=True,
    )
    return JavaGateway(
        gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
    ).jvm


def settings(java, own):
    """How to enter the cluster where it is now; of a secured one a file says so."""
    made = java.java.util.Properties()
    if file := os.environ.get(f"LINKFLAP_PROPERTIES_{os.environ['LINKFLAP_CLUSTER']}"):
        made.load(java.java.io.FileReader(file))
    made.putAll(own | {"bootstrap.servers": os.environ["LINKFLAP_BOOTSTRAP"]})
    return made


def main():
    signal.signal(signal.SIGTERM, stop)
    java = jvm()
    kafka, output, wait = (
        java.org.apache.kafka.clients,
        os.environ["LINKFLAP_WRITES"],
        java.java.time.Duration.ofMillis(200),
    )
    orders = kafka.consumer.KafkaConsumer(settings(java, READING))
    payments = kafka.producer.KafkaProducer(settings(java, WRITING))
    payments.initTransactions()
    orders.subscribe(os.environ["LINKFLAP_READS"].split(","))
    made = 0
    while not stopping:
        if STUCK_AFTER is not None and made >= STUCK_AFTER:
            if made < sys.maxsize:
                print(f"made {made} payments, and stuck", flush=True)
                made = sys.maxsize
            time.sleep(0.1)
            continue
        batch = orders.poll(wait)
        if not batch.count():
            continue
        payments.beginTransaction()
        for order in batch.iterator():
            key = order.key()
            payments.send(
                kafka.producer.ProducerRecord(
                    output, None, key, b"paid " + (key or b""), order.headers()
                )
            )
        positions = {
            partition: kafka.consumer.OffsetAndMetadata(orders.position(partition))
            for partition in orders.assignment()
        }
        if not APART:
            payments.sendOffsetsToTransaction(positions, orders.groupMetadata())
        payments.commitTransaction()
        made += batch.count()
        fail_point()
        if APART:
            orders.commitSync(positions)
    orders.close()


if __name__ == "__main__":
    main()

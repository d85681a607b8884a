"""MirrorMaker 2's connectors on a Connect cluster of two workers, as an operator of Connect
(Strimzi, say) runs them.

linkflap calls it by mirror.toml: `start` runs the workers until it is ended, `crash` kills one of
them, `restart` has the first call start it again, `promote` waits until the groups of the source
are on the destination as far as they will get. CHECKPOINTS_AS=SAMPLER_ is the planted bug: the
checkpoint connector enters the target as a user who may describe, and not write.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

HERE = os.environ
FOLDER = Path(HERE["LINKFLAP_FOLDER"])
SOURCE, TARGET = HERE["LINKFLAP_SOURCE"], HERE["LINKFLAP_DESTINATION"]
PACKAGE = "org.apache.kafka.connect"
SYNCED_WITHIN = 20.0
JVM = ("-Xms64m", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.level=INFO")


def entered(prefix, side, who=""):
    """A cluster's address and how it is entered; the password stays in the file where it is
    (FileConfigProvider)."""
    file = HERE.get(f"LINKFLAP_{side}_{who}PROPERTIES", "")
    lines = Path(file).read_text().splitlines() if file else []
    values = dict(line.split("=", 1) for line in lines) | {
        "bootstrap.servers": HERE[f"LINKFLAP_{side}_BOOTSTRAP"]
    }
    if "sasl.jaas.config" in values:
        values["sasl.jaas.config"] = f"${{file:{file}:sasl.jaas.config}}"
    return {prefix + name: value for name, value in values.items()}


def worker(number, port):
    """Starts one of them."""
    topics = {
        f"{kind}.storage.topic": f"mm2-connect-{kind}" for kind in ("config", "offset", "status")
    }
    factors = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
    values = topics | factors | {
        "group.id": "mm2-connect",
        "key.converter": f"{PACKAGE}.converters.ByteArrayConverter",
        "value.converter": f"{PACKAGE}.converters.ByteArrayConverter",
        # the default one changes headers
        "header.converter": f"{PACKAGE}.converters.ByteArrayConverter",
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.discovery": "service_load",
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "offset.flush.interval.ms": "1000",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "500",
        "scheduled.rebalance.max.delay.ms": "0",
    }  # fmt: skip
    for prefix in ("", "producer.", "consumer.", "admin."):
        values |= entered(prefix, "DESTINATION")
    file = FOLDER / f"worker-{number}.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    words = [
        HERE["LINKFLAP_JAVA"],
        *JVM,
        "-cp",
        HERE["LINKFLAP_CLASSPATH"],
        f"{PACKAGE}.cli.ConnectDistributed",
        str(file),
    ]
    with (FOLDER / f"worker-{number}.log").open("ab") as log:
        return subprocess.Popen(words, stdout=log, stderr=log)


def connectors():
    both = {
        "source.cluster.alias": SOURCE,
        "target.cluster.alias": TARGET,
        "replication.policy.class": f"{PACKAGE}.mirror.IdentityReplicationPolicy",
        "offset-syncs.topic.location": "target",
        "offset-syncs.topic.replication.factor": "1",
        "offset.lag.max": "0",
        **entered("source.cluster.", "SOURCE"),
    }
    source = {
        "connector.class": f"{PACKAGE}.mirror.MirrorSourceConnector",
        "tasks.max": "2",
        "topics": HERE["LINKFLAP_TOPIC_PATTERN"],
        "replication.factor": "1",
        "sync.topic.acls.enabled": "false",
        "refresh.topics.interval.seconds": "1",
        "source.consumer.isolation.level": "read_committed",
        **entered("target.cluster.", "DESTINATION"),
    }
    checkpoints = {
        "connector.class": f"{PACKAGE}.mirror.MirrorCheckpointConnector",
        "groups": ".*",
        "checkpoints.topic.replication.factor": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        **entered("target.cluster.", "DESTINATION", HERE.get("CHECKPOINTS_AS", "")),
    }
    return {"mirror-source": both | source, "mirror-checkpoint": both | checkpoints}


def rest(path, body=None):
    """Asks one worker, the other where that does not answer; None where neither does."""
    for port in json.loads((FOLDER / "ports").read_text()):
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="GET" if body is None else "PUT",
        )
        try:
            with urllib.request.urlopen(asked, timeout=10) as answer:
                return json.load(answer)
        except (OSError, urllib.error.URLError):  # not up yet, or busy with a rebalance (409)
            continue
    return None


class Bell:
    """Signals as they come: waiting for them ends with the first, and none is missed that comes
    meanwhile."""

    def __init__(self, *numbers):
        self.bell, self.ringer = socket.socketpair()
        self.ringer.setblocking(False)
        signal.set_wakeup_fd(self.ringer.fileno())  # each signal writes its number there
        for number in numbers:
            signal.signal(number, lambda *_: None)

    def heard(self, within):
        self.bell.settimeout(within)
        try:
            return set(self.bell.recv(64))
        except TimeoutError:
            return set()


def free_ports():
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def living(workers):
    """Number -> pid of the workers that run, also in a file for `crash`."""
    pids = {number: each.pid for number, each in workers.items() if each.poll() is None}
    (FOLDER / "pids.new").write_text(json.dumps(pids))
    (FOLDER / "pids.new").rename(FOLDER / "pids")
    return pids


def hand_over(waiting):
    """The connectors that the workers have not taken yet."""
    return {
        name: settings
        for name, settings in waiting.items()
        if not rest(f"/connectors/{name}/config", settings)
    }


def end(workers):
    for each in workers.values():
        each.terminate()
    for each in workers.values():
        each.wait()


def start():
    FOLDER.mkdir(parents=True, exist_ok=True)
    ports = dict(enumerate(free_ports(), start=1))
    (FOLDER / "ports").write_text(json.dumps(list(ports.values())))
    bell = Bell(signal.SIGUSR1, signal.SIGTERM)
    workers = {number: worker(number, port) for number, port in ports.items()}
    waiting, heard = connectors(), set()
    while signal.SIGTERM not in heard:
        pids = living(workers)
        if not pids:
            sys.exit("both workers have ended")
        if signal.SIGUSR1 in heard:
            workers |= {
                number: worker(number, port) for number, port in ports.items() if number not in pids
            }
        waiting = hand_over(waiting)
        heard = bell.heard(0.2)
    end(workers)


def ready():
    """The tasks that copy run. What the other connector does, nobody looks at."""
    said = rest("/connectors/mirror-source/status")
    states = [task["state"] for task in said["tasks"]] if said else []
    sys.exit(0 if states and set(states) == {"RUNNING"} else 1)


def crash():
    pids = json.loads((FOLDER / "pids").read_text())
    os.kill(min(pids.values()), signal.SIGKILL)


def restart():
    os.kill(int(HERE["LINKFLAP_PID"]), signal.SIGUSR1)


def cluster(side):
    """Settings of a client, and an admin client."""
    file = HERE.get(f"LINKFLAP_{side}_CONFIG", "")
    values = (
        dict(line.split("=", 1) for line in Path(file).read_text().splitlines()) if file else {}
    )
    values |= {"bootstrap.servers": HERE[f"LINKFLAP_{side}_BOOTSTRAP"]}
    return values, AdminClient(values)


def positions(admin, group):
    asked = admin.list_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group)], request_timeout=10
    )
    return {(p.topic, p.partition): p.offset for p in asked[group].result().topic_partitions}


def ends(values, partitions):
    consumer = Consumer(values | {"group.id": "mm2-ends", "enable.auto.commit": False})
    try:
        return {
            tp: consumer.get_watermark_offsets(TopicPartition(*tp), timeout=10)[1]
            for tp in partitions
        }
    finally:
        consumer.close()


def promote():
    """What the groups of the source have read to the end is committed at the end of the destination
    too; or time is up."""
    (_, source), (values, target) = cluster("SOURCE"), cluster("DESTINATION")
    bell, deadline = Bell(signal.SIGTERM), time.monotonic() + SYNCED_WITHIN
    while time.monotonic() < deadline:
        groups = [
            group.group_id
            for group in source.list_consumer_groups(request_timeout=10).result().valid
        ]
        there = {
            (group, tp): offset
            for group in groups
            for tp, offset in positions(target, group).items()
        }
        wanted = {(group, tp) for group in groups for tp in positions(source, group)}
        last = ends(values, {tp for _, tp in wanted})
        late = [key for key in wanted if there.get(key, -1) < last[key[1]]]
        if not late:
            return
        if bell.heard(0.5):
            sys.exit("ended before the groups were synced")
    print(f"not synced after {SYNCED_WITHIN:g} s, and promoted all the same: {sorted(late)}")


if __name__ == "__main__":
    {each.__name__: each for each in (start, ready, crash, restart, promote)}[sys.argv[1]]()

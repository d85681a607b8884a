"""Mirrors whose source or link is down: backlog, retention, reported lag, and a stop meanwhile."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Final

from confluent_kafka import TopicPartition

from linkflap.chaos.cases.bench import PAIR, Bench, happens, wait_for
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.wire import Wire, record_batch
from linkflap.harness.log import layout
from linkflap.harness.mirrors.cluster_mirroring.admin import MIRRORING, VerbRefused
from linkflap.harness.model.wait import pause

PARTITIONS, BACKLOG, SIZE = 40, 25, 20_000
OUTAGE, TOO_LONG = 5.0, 3.0
STANDS_STILL = 5.0
_TABLE: Final = Path("/proc/net/tcp")


def _longest(
    wire: Wire, topic: str, seconds: float, seen: Callable[[], object] = bool
) -> tuple[float, int]:
    """Produce round trips for so long, one after another: the longest, and how many. `seen` is
    called after each."""
    taken: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        wire.produce((topic, len(taken) % PARTITIONS), record_batch([b"probe"]))
        taken.append(time.monotonic() - began)
        seen()
    return round(max(taken), 3), len(taken)


def connections(table: Iterable[str], ports: Collection[int]) -> frozenset[int]:
    """Local ports of the connections to `ports` in Linux's table of TCP sockets (/proc/net/tcp),
    also of those just closed."""
    found = (line.split() for line in table)
    pairs = (
        (row[1].rpartition(":")[2], row[2].rpartition(":")[2])
        for row in found
        if len(row) > 2 and ":" in row[2]
    )
    return frozenset(int(local, 16) for local, remote in pairs if int(remote, 16) in ports)


def _connections(bench: Bench) -> frozenset[int]:
    """Local ports of the connections that the mirror has, or had a moment ago, to the proxies of
    the link. Empty where the system has no table of connections."""
    ports = {
        int(address.rpartition(":")[2])
        for address in bench.deployment.links["A->B"].bootstrap.split(",")
    }
    try:
        return connections(_TABLE.read_text().splitlines(), ports)
    except OSError:
        return frozenset()


@case("VK1-outage-backlog", PAIR, claim={"suspended": False}, control={"suspended": True})
def outage_backlog(bench: Bench, *, suspended: bool) -> Observation:
    """The link is down while every partition grows by half a megabyte, and comes back; or the
    broker stands still instead."""
    topic = bench.topic(partitions=PARTITIONS)
    mirror = bench.mirror("shadow")
    mirror.start()
    wire = bench.ask(bench.broker())
    before, _ = _longest(wire, topic, 2.0)
    link = bench.deployment.links["A->B"]
    link.cut()
    down_since = time.monotonic()
    for _ in range(BACKLOG):
        for partition in range(PARTITIONS):
            wire.produce((topic, partition), record_batch([b"x" * SIZE]))
    pause(max(0.0, OUTAGE - (time.monotonic() - down_since)), lambda: False)
    behind = mirror.lag()
    old, new = _connections(bench), set[int]()
    link.restore()
    healed = time.monotonic()
    if suspended:
        bench.broker().pause()
        pause(STANDS_STILL, lambda: False)
        bench.broker().resume()
        during = time.monotonic() - healed
        count = 1
    else:
        during, count = _longest(wire, topic, 6.0, lambda: new.update(_connections(bench) - old))
    wait_for(
        "the mirror to catch up", lambda: mirror.lag() == 0, within=180, every=0.2, state=mirror.lag
    )
    facts = {
        "backlog_bytes": PARTITIONS * BACKLOG * SIZE,
        "lag_at_the_heal": behind,
        "connections_made_after_the_heal": len(new),
        "caught_up_within": round(time.monotonic() - healed, 1),
        "longest_produce_before": before,
        "longest_produce_while_catching_up": round(during, 3),
        "produces_while_catching_up": count,
    }
    return Observation(shown=during > TOO_LONG, facts=facts)


BEFORE, DURING, LEFT = 10, 20, 5


@case("AS1-retention-overtakes", PAIR, claim={"delete": True}, control={"delete": False})
def source_retention(bench: Bench, *, delete: bool) -> Observation:
    """DeleteRecords does at once what retention does in time."""
    topic = bench.topic()
    bench.write(topic, [b"before %d" % n for n in range(BEFORE)])
    mirror = bench.mirror("shadow")
    mirror.start()
    bench.drained(mirror)
    mirror.crash()
    bench.write(topic, [b"during %d" % n for n in range(DURING)])
    first = BEFORE + DURING - LEFT
    if delete:
        admin = bench.admin()  # its answers end with it
        admin.delete_records([TopicPartition(topic, 0, first)])
        wait_for("A's log start to move", lambda: bench.bound("start", topic) == first)
    mirror.restart()
    bench.write(topic, [b"last"])
    bench.drained(mirror)
    end = BEFORE + DURING + 1
    bench.ends_at(end, topic)
    read = [
        (offset, value.decode())
        for offset, value in bench.read(topic, "read_uncommitted", cluster="B")
    ]
    values = [value for _, value in read]
    missing = [n for n in range(DURING) if f"during {n}" not in values]
    facts = {
        "A_log_start": bench.bound("start", topic),
        "B_log_start": bench.bound("start", topic, cluster="B"),
        "missing_on_B": missing,
        "offset_of_the_last_on_B": next(
            (offset for offset, value in read if value == "last"), None
        ),
        "mirror_alive": mirror.alive,
        "lag": mirror.lag(),
    }
    return Observation(
        shown=bool(missing) and facts["lag"] == 0 and facts["mirror_alive"] is True, facts=facts
    )


MIRRORED, BEHIND = 100, 50
OLD: Final = 5.0
"""Seconds that an answer may be old: metadata is refreshed every two."""
WATCHED: Final = 15.0
OWNER: Final = "case"


@case("KIP-1279-lag-of-a-silent-source", PAIR, claim={"silent": True}, control={"silent": False})
def lag_of_a_silent_source(bench: Bench, *, silent: bool) -> Observation:
    """Requests reach A, and no answer comes back; what describe says is held against the bytes of
    both logs."""
    topic = bench.topic()
    link = bench.deployment.links["A->B"]
    bench.write(topic, [b"%d" % n for n in range(MIRRORED)])
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        wait_for("B to have all", lambda: bench.log_end(topic, cluster="B") == MIRRORED, every=0.2)
        try:
            if silent:
                link.add_toxic("timeout", "responses", {"timeout": 0}, owner=OWNER)
            bench.write(topic, [b"behind %d" % n for n in range(BEHIND)])
            pause(OLD, lambda: False)
            described: dict[str, int] = {}
            missing = BEHIND
            end = time.monotonic() + WATCHED
            while time.monotonic() < end:
                for row in mirror.rows():
                    words = f"{row.state}, lag {row.lag}"
                    described[words] = described.get(words, 0) + 1
                missing = min(missing, bench.log_end(topic) - bench.log_end(topic, cluster="B"))
                pause(0.2, lambda: False)
        finally:
            link.clear(owner=OWNER)
    facts = {"missing_on_B_all_the_time": missing, "describe": described}
    return Observation(shown=missing > 0 and f"{MIRRORING}, lag 0" in described, facts=facts)


FEW_PARTITIONS: Final = 4
STOPPED: Final = {"STOPPED": FEW_PARTITIONS}


@case("KIP-1279-stop-of-a-dying-source", PAIR, claim={"dies": True}, control={"dies": False})
def stop_of_a_dying_source(bench: Bench, *, dies: bool) -> Observation:
    """The source dies while its partitions are still MIRRORING by describe, and stop is asked for
    at once."""
    topic = bench.topic(partitions=FEW_PARTITIONS)
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(FEW_PARTITIONS)
        if dies:
            bench.broker().kill()
        try:
            mirror.stop()
            answer = "accepted"
        except VerbRefused as error:
            answer = error.name
        if answer == "accepted":
            happens("all to be STOPPED", lambda: mirror.states() == STOPPED, every=0.3)
        states = dict(mirror.states())
    return Observation(
        shown=answer == "accepted" and states != STOPPED,
        facts={"answer": answer, "states_at_the_end": states},
    )


SOUND: Final = 3
"""Batches before the corrupt one, and behind it with itself."""
TRIED: Final = 20.0
"""Seconds in which the mirror may notice: it tries again after one second, and after five at
most."""


@case("KIP-1279-corrupt-batch", PAIR, claim={"corrupt": True}, control={"corrupt": False})
def corrupt_batch(bench: Bench, *, corrupt: bool) -> Observation:
    """A byte of a record is another one on the only disk of A that has it, before the mirror is
    created."""
    topic = bench.topic()
    for n in range(2 * SOUND):
        bench.write(topic, [b"batch %d" % n])
    (segment,) = (bench.broker().log_dir / f"{topic}-0").glob("*.log")
    batch = list(layout.walk(segment.read_bytes()))[SOUND]
    if corrupt:
        with segment.open("r+b") as file:
            file.seek(batch.stop - 2)  # in the value of its last record
            (byte,) = file.read(1)
            file.seek(batch.stop - 2)
            file.write(bytes([byte ^ 1]))
    described: Counter[str] = Counter()
    with branch_mirror(bench, topic) as mirror:
        mirror.created()
        mirror.started()
        end = time.monotonic() + TRIED
        while time.monotonic() < end:
            described.update(f"{row.state}, lag {row.lag}" for row in mirror.rows())
            pause(0.2, lambda: False)
        last = [f"{row.state}, lag {row.lag}, error {row.error!r}" for row in mirror.rows()]
    on_a, on_b = bench.logged(topic), bench.logged(topic, cluster="B")
    facts = {"on_A": on_a, "on_B": on_b, "describe": dict(described), "last": last}
    hidden = last == [f"{MIRRORING}, lag 0, error ''"]
    return Observation(shown=len(on_b) < len(on_a) and hidden, facts=facts)

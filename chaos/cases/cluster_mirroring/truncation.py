"""Truncations of a mirrored log, of what has been read, and down to offset 0."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Final

from linkflap.chaos.cases import wire
from linkflap.chaos.cases.bench import PAIR, WITHIN, Bench, happens, wait_for
from linkflap.chaos.cases.branch_mirror import branch_mirror
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.wire import Wire
from linkflap.harness.log import layout
from linkflap.harness.mirrors.cluster_mirroring.admin import MIRRORING
from linkflap.harness.model.errors import EnvironmentFailure
from linkflap.harness.wire.access import Unanswered
from linkflap.harness.wire.messages import Error
from linkflap.harness.wire.requests import fetch
from linkflap.topologies import parse

BOTH, ALONE, AFTER = 10, 10, 5
_TOPOLOGY = parse("A:3->B")


@case("VK6-unclean-election", _TOPOLOGY, claim={"unclean": True}, control={"unclean": False})
def unclean_election(bench: Bench, *, unclean: bool) -> Observation:
    """Only the first has the last records when it dies; the second leads from then on, or waits for
    the first."""
    first, second, third = bench.cluster().brokers.values()
    config = {"min.insync.replicas": "1", "unclean.leader.election.enable": str(unclean).lower()}
    topic = bench.topic(replicas=[first.id, second.id], config=config)
    mirror = bench.mirror("shadow")
    mirror.start()
    bench.write(topic, [b"both %d" % n for n in range(BOTH)])
    second.stop()
    asked = bench.ask(third)
    bench.in_sync(topic, first, by=asked)
    bench.write(topic, [b"alone %d" % n for n in range(ALONE)])
    bench.drained(mirror)
    bench.ends_at(BOTH + ALONE, topic)
    first.kill()
    second.start()
    if not unclean:
        first.start()
    leader = second.id if unclean else first.id
    wait_for(
        f"broker {leader} to lead",
        lambda: wire.leader(third.client_address, topic) == leader,
        within=2 * WITHIN,
        every=0.2,
    )
    bench.write(topic, [b"after %d" % n for n in range(AFTER)])
    on_a: list[str] = []
    on_b: list[str] = []

    def the_same() -> bool:
        on_a[:] = bench.logged(topic, broker=leader)
        on_b[:] = bench.logged(topic, cluster="B")
        return on_a == on_b

    # the lag says nothing: it is 0 while the destination has more than the source
    happens("both logs to be the same", the_same, every=0.5)
    if first.state == "stopped":
        first.start()
    differ = [n for n, (a, b) in enumerate(zip(on_a, on_b, strict=False)) if a != b]
    facts = {
        "records_on_A": len(on_a),
        "records_on_B": len(on_b),
        "first_difference": differ[:1],
        "only_on_B": sorted(set(on_b) - set(on_a))[:3],
        "mirror_alive": mirror.alive,
    }
    return Observation(shown=bool(differ) or bool(set(on_b) - set(on_a)), facts=facts)


BATCHES: Final = 20_000
"""Batches of one record each, below the truncation: producer state is rebuilt from all of them."""
OPEN: Final = 20
TAIL: Final = 100
"""Records that A alone has, behind the end of the transaction."""
OF_B: Final = 200
"""Records that are written to B once it was promoted: A's log is longer in the end than it was."""
OWNER: Final = "case"
_BYTES: Final = 16_384
_COMMITTED: Final = 1
_AS_ABORTED: Final = "with the transaction, as aborted"
_AS_COMMITTED: Final = "with the transaction, as committed"
_OF_TRANSACTION: Final = frozenset({_AS_ABORTED, _AS_COMMITTED})


@dataclass(slots=True, kw_only=True)
class _Fetches:
    """Fetches of committed records from one offset on, again and again, by a thread."""

    wire: Wire
    topic: str
    offset: int
    producer_id: int
    answers: Counter[str] = field(default_factory=Counter)
    seen: dict[str, int] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                self._fetch()
            except Unanswered:
                self.answers["none"] += 1

    def _fetch(self) -> None:
        body = replace(
            fetch(12, self.topic, 0, self.offset, most=_BYTES),
            max_wait=timedelta(0),
            isolation_level=_COMMITTED,
        )
        answer = self.wire.call("fetch", 12, body)
        fetched = answer.responses[0].partitions[0]
        if fetched.error_code != Error.none:
            self.answers[str(fetched.error_code.name)] += 1
            return
        aborted = {int(each.producer_id) for each in fetched.aborted_transactions or ()}
        batches = self._of_the_transaction(bytes(fetched.records or b""))
        if not batches:
            self.answers["without the transaction"] += 1
        elif self.producer_id in aborted:
            self.answers[_AS_ABORTED] += 1
        else:
            self.answers[_AS_COMMITTED] += 1
            self.seen = self.seen or {
                "last_stable_offset": int(fetched.last_stable_offset),
                "high_watermark": int(fetched.high_watermark),
                "first_offset": batches[0].base,
                "last_offset": batches[-1].last,
            }

    def _of_the_transaction(self, data: bytes) -> list[layout.Batch]:
        """The transaction's batches, up to bytes that are no batch; those are counted."""
        found: list[layout.Batch] = []
        try:
            found.extend(layout.walk(data))
        except ValueError:
            self.answers["with bytes that are no batch"] += 1
        return [batch for batch in found if batch.producer_id == self.producer_id]


@case("KIP-1279-read-while-truncated", PAIR, claim={"forced": True}, control={"forced": False})
def read_while_truncated(bench: Bench, *, forced: bool) -> Observation:
    """`forced`: the link is silent before the transaction ends, and A dies; else everything is
    mirrored before B is promoted."""
    topic = bench.topic()
    brokers = bench.cluster("A").brokers.values()
    link = bench.deployment.links["A->B"]
    _filled(bench, topic)
    first = bench.bound("high", topic)
    writer = bench.wire_transactional(timeout=600.0)
    writer.add((topic, 0))
    for number in range(OPEN):
        writer.write((topic, 0), b"open %d" % number)
    with branch_mirror(bench, topic) as away:
        away.mirrors(1)
        bench.ends_at(bench.bound("high", topic), topic)
        try:
            if forced:
                link.add_toxic("timeout", "responses", {"timeout": 0}, owner=OWNER)
            writer.end(commit=False)
            bench.write(topic, [b"of A %d" % n for n in range(TAIL)])
            if forced:
                for broker in brokers:
                    broker.pause()
            else:
                bench.ends_at(bench.bound("high", topic), topic)
            away.promoted(1)
            for broker in brokers:
                broker.kill()
        finally:
            link.clear(owner=OWNER)
    bench.write(topic, [b"of B %d" % n for n in range(OF_B)], cluster="B")
    bench.settle()
    fetches = _Fetches(
        wire=bench.ask(bench.up()), topic=topic, offset=first, producer_id=writer.producer.id
    )
    with ThreadPoolExecutor(max_workers=1) as pool:
        reading = pool.submit(fetches.run)
        try:
            with branch_mirror(bench, topic, "A", source="B") as back:
                back.mirrors(1)
                bench.ends_at(bench.bound("high", topic, cluster="B"), topic, cluster="A")
        finally:
            fetches.ended.set()
        reading.result(WITHIN)  # raises what ended the fetches early
    if not fetches.answers.keys() & _OF_TRANSACTION:
        raise EnvironmentFailure(
            f"no fetch of {topic} returned the transaction: {dict(fetches.answers)}; play it again"
        )
    facts = {
        "transaction": [first, first + OPEN - 1],
        "ended_at": bench.bound("high", topic),
        "fetches": dict(fetches.answers),
        "first_as_committed": fetches.seen,
    }
    return Observation(shown=bool(fetches.seen), facts=facts)


def _filled(bench: Bench, topic: str) -> None:
    """Many small batches, of an idempotent producer."""
    producer = bench.producer(enable_idempotence=True, batch_num_messages=1)
    for number in range(BATCHES):
        producer.produce(topic, b"%d" % number, partition=0)
        producer.poll(0)
    producer.flush(2 * WITHIN)


RECORDS: Final = 200
WATCHED: Final = 20.0
"""Seconds for which the log of B's leader is watched after the follower is in sync again."""


@case(
    "KIP-1279-paused-follower",
    parse("A->B:3"),
    claim={"pause": True},
    control={"pause": False},
)
def paused_follower(bench: Bench, *, pause: bool) -> Observation:
    """A, the link and the leader of B are untouched."""
    topic = bench.topic()
    bench.write(topic, [b"%d" % n for n in range(RECORDS)])
    with branch_mirror(bench, topic) as mirror:
        mirror.mirrors(1)
        bench.ends_at(RECORDS, topic)
        leader = bench.broker(wire.leader(bench.bootstrap("B").split(",")[0], topic), "B")
        asked = bench.ask(leader)
        follower = bench.other(leader, "B")
        shortest = RECORDS

        def truncated() -> bool:
            nonlocal shortest
            shortest = min(shortest, bench.log_end(topic, broker=leader.id, cluster="B"))
            return shortest < RECORDS

        in_sync = frozenset(asked.leadership(topic)[0].in_sync)
        if pause:
            follower.pause()
            try:
                out = partial(_in_sync, asked, topic, in_sync - {follower.id})
                wait_for(
                    f"broker {follower.id} to be out of sync",
                    lambda: truncated() or out(),
                    every=0.02,
                )
            finally:
                follower.resume()
        happens("the leader's log to be shorter", truncated, within=WATCHED)
        facts = {
            "mirrored": RECORDS,
            "shortest_log_of_the_leader": shortest,
            "leader": leader.id,
            "follower": follower.id,
            "states_at_the_end": dict(mirror.states()),
        }
    return Observation(shown=shortest < RECORDS, facts=facts)


def _in_sync(asked: wire.Wire, topic: str, wanted: frozenset[int]) -> bool:
    return frozenset(asked.leadership(topic)[0].in_sync) == wanted


PARTITIONS: Final = 3
"""Few: with more of them brokers are busy for longer before they ask, and the log is there by
then."""


@case(
    "KIP-1279-stuck-at-start",
    parse("A->B:3, A->C"),
    claim={"to": "B"},
    control={"to": "C"},
)
def stuck_at_start(bench: Bench, *, to: str) -> Observation:
    """KIP-1279 itself: the first mirror of a cluster is started at once, and a partition of it
    stays in LOG_TRUNCATION."""
    topic = bench.topic(partitions=PARTITIONS)
    with branch_mirror(bench, topic, to) as mirror:
        mirror.create()
        mirror.started()
        mirroring = {MIRRORING: PARTITIONS}
        happens(f"{topic} to mirror", lambda: mirror.states() == mirroring, every=0.5)
        rows = mirror.rows()
    stuck = sorted(row.partition for row in rows if row.state == mirror.aligning)
    return Observation(
        shown=bool(stuck),
        facts={"states_after_a_minute": dict(Counter(row.state for row in rows)), "stuck": stuck},
    )

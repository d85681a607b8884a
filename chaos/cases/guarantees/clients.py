"""Guarantees for real clients: KIP-360, KIP-447, KIP-848 and KIP-890 with librdkafka and Java,
transactions V1 and V2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from linkflap.chaos.cases.bench import ONE, WITHIN, Bench, one, wait_for
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.tools.clients import CaseMember, ClientFailed, send_offsets
from linkflap.chaos.cases.tools.logs import markers

TIMEOUT: Final = "1500"


def _asked(call: Callable[[], object]) -> str:
    """The name of the error, or "none"."""
    try:
        call()
    except ClientFailed as error:
        return error.name
    except KafkaException as error:
        return str(error.args[0].name())
    return "none"


@case("KIP-360-fenced-for-good", ONE, claim={"same_id": True}, control={"same_id": False})
def returned(bench: Bench, *, same_id: bool) -> Observation:
    """The old client continues like an application that catches the error of its commit: abort,
    begin, write, commit."""
    topic = bench.topic()
    old = bench.transactional("writer")
    old.begin()
    old.send(topic, b"of the old one")
    old.flush()
    new = bench.transactional("writer" if same_id else "other")
    answers = {
        "commit": _asked(old.commit),
        "abort": _asked(old.abort),
        "begin": _asked(old.begin),
        "send": _asked(lambda: old.send(topic, b"of the old one, again")),
        "second commit": _asked(old.commit),
    }
    new.begin()
    new.send(topic, b"of the new one")
    successor = _asked(new.commit)
    read = bench.texts(topic)
    facts = {"answers_to_the_old": answers, "commit_of_the_new": successor, "read_committed": read}
    return Observation(
        shown=any("old" in value for value in read) or successor != "none", facts=facts
    )


@case("KIP-447-stale-member-client", ONE, claim={"stale": True}, control={"stale": False})
def relayed(bench: Bench, *, stale: bool) -> Observation:
    """A relay that has left its group commits the offsets that it had read. Or a producer that was
    never in the group, which the fence does not cover."""
    topic, group = bench.topic(), bench.name("group")
    bench.write(topic, [b"input"] * 5)
    before = bench.member(group)
    if stale:
        before.subscribe(topic)
        wait_for("the first member to read", lambda: before.poll(0.5))
    of_before = before.metadata()
    if stale:
        before.close()
    now = bench.member(group)
    now.subscribe(topic)
    wait_for("its successor to read", lambda: now.poll(0.5))
    writer = bench.transactional("relay")
    writer.begin()
    sent = _asked(lambda: send_offsets(writer, topic, 5, of_before))
    ended = _asked(writer.commit) if sent == "none" else _asked(writer.abort)
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0)])
    admin = bench.admin()  # its answers end with it
    (found,) = admin.list_consumer_group_offsets([asked])[group].result(WITHIN).topic_partitions
    facts = {"send_offsets_to_transaction": sent, "end": ended, "committed": found.offset}
    return Observation(shown=found.offset == 5, facts=facts)


@case(
    "KIP-890-late-commit-client",
    one({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}),
    claim={"times_out": True},
    control={"times_out": False},
)
def timed_out(bench: Bench, *, times_out: bool) -> Observation:
    """The client is idle until its coordinator has aborted the transaction, and then commits it."""
    topic = bench.topic()
    writer = bench.transactional("writer", transaction_timeout_ms=TIMEOUT if times_out else "60000")
    writer.begin()
    writer.send(topic, b"record")
    writer.flush()
    if times_out:
        wait_for("the coordinator's abort", lambda: markers(bench.log(topic)), every=0.1)
    answer = _asked(writer.commit)
    wait_for("a marker", lambda: markers(bench.log(topic)), every=0.1)
    read = bench.texts(topic)
    found = [one.words for one in markers(bench.log(topic))]
    return Observation(
        shown=answer == "none" or bool(read),
        facts={"commit": answer, "markers": found, "read_committed": read},
    )


@case("KIP-848-one-owner", ONE, claim={"one_group": True}, control={"one_group": False})
def owned(bench: Bench, *, one_group: bool) -> Observation:
    """A second member joins. After each poll of either, both report their partitions, until both
    have some."""
    topic = bench.topic(partitions=2)
    bench.write(topic, [b"record"])
    groups = [bench.name("group"), bench.name("group" if one_group else "other")]
    first, second = (bench.member(group, group_protocol="consumer") for group in groups)
    first.subscribe(topic)

    def owns(who: CaseMember, at_least: int) -> bool:
        who.poll(0.2)
        return len(who.assignment()) >= at_least

    wait_for("the first member to own both partitions", lambda: owns(first, 2))
    second.subscribe(topic)
    overlaps: list[list[int]] = []

    def settled() -> bool:
        first.poll(0.2)
        second.poll(0.2)
        # before the first one's: what it still has now it had when the second one owned it
        theirs = second.assignment()
        mine = first.assignment()
        if both := mine & theirs:
            overlaps.append(sorted(both))
        return bool(theirs) and (not one_group or len(mine) == len(theirs) == 1)

    wait_for("both members to own partitions", settled)
    facts = {
        "owned_by_both": overlaps,
        "first": sorted(first.assignment()),
        "second": sorted(second.assignment()),
    }
    return Observation(shown=bool(overlaps), facts=facts)

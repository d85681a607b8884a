"""Clients that promise progress in a random history: its own readers, groups and producers, and a
program that writes its topic; from and until random times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from linkflap.spark_verify.facts.partition_facts import Awaited
from linkflap.spark_verify.facts.view import PartitionView
from tests.oracles.shares import with_shares
from tests.oracles.worlds import SECOND, TOPIC, World

ERRORS = ("", "", "_FENCED", "_FATAL", "INVALID_TXN_STATE", "_MSG_TIMED_OUT")


def with_awaited(
    made: World, views: Sequence[PartitionView], random: Random
) -> list[PartitionView]:
    """The same partitions, some of whose operations ended with an error."""
    views = with_shares([_with_errors(view, random) for view in views], random)
    awaited = tuple(_clients(made, views, random))
    return [
        replace(
            view,
            partition_facts=replace(
                view.partition_facts,
                facts=replace(view.partition_facts.facts, awaited=awaited, recorded=True),
            ),
        )
        for view in views
    ]


def _with_errors(view: PartitionView, random: Random) -> PartitionView:
    sends = [
        replace(send, error=random.choice(ERRORS)) if random.random() < 0.2 else send
        for send in view.sends
    ]
    return replace(view, sends=sends)


def _clients(made: World, views: Sequence[PartitionView], random: Random) -> Iterator[Awaited]:
    readers = {(r.reader, r.cluster) for view in views for r in view.reads if not r.group}
    groups = {(g.group, g.cluster) for view in views for g in view.groups}
    shares = {(r.group, r.cluster) for view in views for r in view.shares}
    producers = {(s.client, s.cluster) for view in views for s in view.sends}
    for name, cluster in sorted(readers):
        yield _awaited(made, random, client=name, kind="reader", cluster=cluster)
    for group, cluster in sorted(groups):
        yield _awaited(
            made, random, client=f"group {group}", kind="group", cluster=cluster, group=group,
            topics=frozenset(random.choice([(), (TOPIC,)])),
        )  # fmt: skip
    for group, cluster in sorted(shares):
        yield _awaited(
            made, random, client=f"shares {group}", kind="share", cluster=cluster, group=group
        )
    for name in sorted({name for name, _ in producers}):
        cluster = random.choice(sorted(at for other, at in producers if other == name))
        yield _awaited(
            made, random, client=name, kind="producer", cluster=cluster,
            produces=random.random() < 0.8, timeout=random.choice([1, 5, 60]) * SECOND,
        )  # fmt: skip
    yield _awaited(
        made, random, client="command-1", kind="program", cluster="A",
        outputs=frozenset({TOPIC}), topics=frozenset(random.choice([(), (TOPIC,)])),
    )  # fmt: skip


def _awaited(made: World, random: Random, **fields: Any) -> Awaited:
    since = random.randint(0, made.time)
    return Awaited(
        home="A",
        since=since,
        until=random.randint(since, made.time + 20 * SECOND),
        within=random.choice([1, 5, 20, 60]) * SECOND,
        isolation=random.choice(["read_committed", "read_uncommitted"]),
        broken=random.choice([0, random.randint(0, since)]),
        exits=tuple(random.choice([(), (), (random.randint(0, made.time),)])),
        **fields,
    )

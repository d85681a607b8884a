"""standby-isolation: only the mirror writes to a mirrored partition, and no mirror writes to any
other (KIP-1279: read-only topics).

There are two witnesses. One is a client that got an acknowledgement, by the time of its request.
The other is the bytes: a mirrored era has a record that a client sent to that very cluster. The
time between the end of an era and the next promotion is the mirror's. From a failover until its log
is truncated, the old cluster has no owner, and truncation-accounting counts its new records as
lost. A write to a cluster that a failover led to, but that was not promoted, means that a promotion
was not recorded.

In the opposite direction, a cycle of mirrors writes to a log that has an owner: a cluster was made
to follow one that follows it (KIP-1279 refuses that), or a native era has a record that clients
sent to another cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from linkflap.harness.model.topology import LinkSpec
from linkflap.spark_verify.checks.base import AnomalyKind, Check, Finding, Found, Unjudged
from linkflap.spark_verify.checks.parts.generation_clients import sends_of, sends_to
from linkflap.spark_verify.checks.parts.generations import (
    apart,
    examined,
    generations,
    judged,
    native,
    number_at,
    numbers_at,
)
from linkflap.spark_verify.checks.parts.logs import Log, runs
from linkflap.spark_verify.checks.parts.outcomes import planned, planner
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.partition_facts import Promotion, Truncation
from linkflap.spark_verify.facts.send_columns import Sends
from linkflap.spark_verify.facts.sends_and_reads import Send
from linkflap.spark_verify.facts.view import Bools, PartitionView

KIND, CIRCLE = "standby-write", "circular-mirror"


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Checks the request time of every acknowledgement, and the sender of every mirrored record."""
    findings: list[Finding] = list(
        judged(view, lambda generation, log: _in_bytes(view, generation, log))
    )
    in_bytes = {
        (f.cluster, f.evidence["operation"])
        for f in findings
        if isinstance(f, Found) and f.kind == KIND
    }
    every, sends = generations(view), Sends.of(view.sends)
    for send in sends.take(_elsewhere(every, sends)):
        acked = send.offsets[send.offsets >= 0]
        if (
            len(acked)
            and (send.cluster, send.number) not in in_bytes
            and _mirrored_then(every[send.cluster], send)
        ):
            findings.append(
                _standby(
                    view, send, int(acked[0]), len(acked), "acknowledged while it was mirrored"
                )
            )
    return [*findings, *_circles(view)]


def _circles(view: PartitionView) -> Iterator[Finding]:
    """Truncations of a cluster that was made to follow its own follower, over any number of links,
    without a promotion."""
    follows = {destination: source for source, destination in view.hops()}
    steps: list[tuple[int, Promotion | Truncation]] = [(p.time, p) for p in view.promotions]
    steps += [(truncation.time, truncation) for truncation in view.truncations]
    for _, step in sorted(steps, key=lambda s: s[0]):
        if isinstance(step, Promotion):
            follows.pop(step.cluster, None)
            continue
        source = LinkSpec.parse(step.link).source
        upstream = [source]
        while (further := follows.get(upstream[-1])) is not None and further not in upstream:
            upstream.append(further)
        if step.cluster in upstream:
            evidence = {
                "how": "made to follow a cluster that followed it",
                "link": step.link,
                "through": upstream,
            }
            yield Found(kind=CIRCLE, cluster=step.cluster, offset=step.offset, evidence=evidence)
        follows[step.cluster] = source


def _elsewhere(every: Mapping[str, Sequence[LogGeneration]], sends: Sends) -> Bools:
    """Those that were not requested in the first generation of a log that was its cluster's own
    from the start."""
    found = np.ones(len(sends), np.bool_)
    for cluster in sends.words("cluster"):
        if every[cluster][0].eras[0].origin == "native":
            found &= ~(
                sends.says("cluster", cluster)
                & (numbers_at(every[cluster], sends.column("invoked")) == 0)
            )
    return found


def _mirrored_then(mine: Sequence[LogGeneration], send: Send) -> bool:
    """Whether the cluster followed another from the operation's request until its
    acknowledgement."""
    generation = mine[number_at(mine, send.invoked)]
    if generation.number == 0 and generation.eras[0].origin == "native":
        return False
    promoted = min(
        (e.began for e in generation.eras if e.origin == "native" and e.began >= generation.began),
        default=FOREVER,
    )
    return generation.began <= send.invoked and 0 <= send.returned < promoted


def _in_bytes(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Finding]:
    # Where offsets move, what clients wrote here before this log was emptied comes back from the
    # new owner.
    kept = view.mirror.guarantee.offsets_kept
    records, mine = (
        log.replica.records,
        sends_to(view, generation.cluster) if kept else sends_of(view, generation),
    )
    rows = np.flatnonzero(~native(generation, records.offset) & (records.uid >= 0))
    findings: list[Finding] = list(examined(generation, records.offset[rows]))
    findings += _came_round(view, generation, log)
    sender = planner(records.uid[rows], mine)
    strange, sender = rows[sender >= 0], sender[sender >= 0]
    for start, end in runs(
        strange, records.uid[strange], apart(generation, records.offset[strange])
    ):
        first = int(strange[start])
        findings.append(
            _standby(
                view,
                mine[int(sender[start])],
                int(records.offset[first]),
                end - start,
                "in an era that is mirrored",
            )
        )
    return findings


def _came_round(view: PartitionView, generation: LogGeneration, log: Log) -> Sequence[Finding]:
    """Records of a native era that clients handed to other clusters, and not to this one."""
    records, here = log.replica.records, generation.cluster
    rows = np.flatnonzero(native(generation, records.offset) & (records.uid >= 0))
    rows = rows[~planned(records.uid[rows], sends_to(view, here))]
    if not len(rows):
        return []
    every = Sends.of(view.sends)
    others = every.take(~every.says("cluster", here))
    sender = planner(records.uid[rows], others)
    rows, sender = rows[sender >= 0], sender[sender >= 0]
    found: list[Finding] = []
    for start, end in runs(rows, records.uid[rows], apart(generation, records.offset[rows])):
        uid = int(records.uid[rows[start]])
        sent = others[int(sender[start])]
        evidence = {
            "records": end - start,
            "uid": uid,
            "how": "handed to another cluster",
            "sent_to": sent.cluster,
        }
        found.append(
            Found(
                kind=CIRCLE,
                cluster=here,
                offset=int(records.offset[rows[start]]),
                evidence=evidence,
            )
        )
    return found


def _standby(view: PartitionView, send: Send, offset: int, records: int, how: str) -> Finding:
    promoted = any(p.cluster == send.cluster for p in view.promotions)
    led_there = any(
        w.fault.startswith("failover") and w.target.endswith(f">{send.cluster}")
        for w in view.windows
    )
    if not promoted and led_there:
        return Unjudged(
            reason=(
                f"{send.cluster} acknowledged writes to {view.topic} but no promotion was recorded"
            )
        )
    evidence = {
        "records": records,
        "how": how,
        "operation": send.number,
        "client": send.client,
        "invoked": send.invoked,
    }
    return Found(kind=KIND, cluster=send.cluster, offset=offset, evidence=evidence)


CHECK = Check(
    name="standby-isolation",
    guarantee=(
        "While a partition is mirrored to a cluster, no client can write to it there, and no "
        "mirror can write to its owner."
    ),
    source="KIP-1279 (mirror topics are read-only; a circular mirror is refused)",
    inputs=frozenset({"batches", "records", "sends", "promotions"}),
    anomalies=(
        AnomalyKind(
            name=KIND,
            meaning=(
                "A cluster that mirrored the partition acknowledged a client's write to it, or has "
                "one in a mirrored era."
            ),
            sentence=(
                "{cluster} acknowledged a write of {client} at {at} while it was mirroring: {how}"
            ),
            counted="write was accepted by a standby|writes were accepted by a standby",
            smallest="nothing was promoted, B acknowledged 9 at offset 0: at offset 0 on B.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=CIRCLE,
            meaning=(
                "A cluster was made to follow one that followed it, or its own era has a record "
                "that was sent to another."
            ),
            sentence="{cluster} got its own records back at {at}: {how}",
            alone="each round adds the records once more",
            smallest=(
                "A->B, nothing was promoted, B acknowledged 9 at offset 0, A has it: at offset 0 "
                "on A."
            ),
            despite_torn=True,
        ),
    ),
    complete=frozenset({"promotions"}),
    kernel=kernel,
    due=frozenset({"mirrored"}),
)

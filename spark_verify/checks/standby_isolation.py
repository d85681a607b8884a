"""standby-isolation: only the mirror writes to a mirrored partition, and no mirror writes to any
other (KIP-1279: read-only topics).

Two kinds of evidence show a violation: a client's acknowledgement, by the time of its request, and
a record in a mirrored era that a client sent to that very cluster. The time between the end of an
era and the next promotion belongs to the mirror. From a failover until the truncation of its log,
the old cluster has no owner, and truncation-accounting counts its new records as lost. A write to a
cluster that a failover led to, but that was not promoted, means that a promotion was not recorded.

In the opposite direction, a cycle of mirrors writes to a log that has an owner: a cluster was made
to follow one that follows it (KIP-1279 refuses that), or a native era has a record that clients
sent to another cluster.

A failover that the mirror refuses or does not complete changes nothing: every partition stays
mirrored. If the mirror nevertheless reports a partition as promoted, or wrote its own end into it
(the ABORT of an open transaction, the reset of the producer state), the failover took effect, in
part or in full. Later anomalies in that partition are consequences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from linkflap.harness.model.events import FailoverRefused
from linkflap.harness.model.topology import LinkSpec
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Finding,
    Found,
    PartialFinding,
    Unjudged,
    grouped,
)
from linkflap.spark_verify.checks.log_model.generations import (
    apart,
    compacted,
    examined,
    generations,
    judged,
    native,
    number_at,
    numbers_at,
    sends_of,
    sends_to,
)
from linkflap.spark_verify.checks.log_model.logs import Log, locate, runs
from linkflap.spark_verify.checks.log_model.outcomes import planned, planner
from linkflap.spark_verify.facts.eras import FOREVER, LogGeneration
from linkflap.spark_verify.facts.partition_facts import LogPromotion, LogTruncation
from linkflap.spark_verify.facts.sends_and_reads import Send, Sends
from linkflap.spark_verify.facts.view import ABORT, OTHER_CONTROL, Bools, PartitionView

KIND, CIRCLE, PARTIAL = "standby-write", "circular-mirror", "partial-promotion"


def kernel(view: PartitionView) -> Sequence[Finding]:
    """Checks the request time of every acknowledgement, and the sender of every mirrored record."""
    findings: list[Finding] = list(judged(view, _in_bytes))
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
    return [*findings, *_circles(view), *_carried_out(view)]


def _circles(view: PartitionView) -> Iterator[Finding]:
    """Truncations of a cluster that was made to follow its own follower, over any number of links,
    without a promotion."""
    follows = {destination: source for source, destination in view.hops()}
    steps: list[tuple[int, LogPromotion | LogTruncation]] = [(p.time, p) for p in view.promotions]
    steps += [(truncation.time, truncation) for truncation in view.truncations]
    for _, step in sorted(steps, key=lambda s: s[0]):
        if isinstance(step, LogPromotion):
            follows.pop(step.cluster, None)
            continue
        source = LinkSpec.parse(step.link).source
        upstream = [source]
        while (further := follows.get(upstream[-1])) is not None and further not in upstream:
            upstream.append(further)
        if step.cluster in upstream:
            yield Found.at(
                CIRCLE,
                step.cluster,
                step.offset,
                how="made to follow a cluster that followed it",
                link=step.link,
                through=upstream,
            )
        follows[step.cluster] = source


def _carried_out(view: PartitionView) -> Iterator[PartialFinding]:
    """For each refused or incomplete failover, whether the mirror promoted this partition
    nevertheless."""
    for link, (kind, start, refusal) in _attempts(view).items():
        way = LinkSpec.parse(link)
        # The second: a mirror that was reversed.
        led = any(
            each in view.topology.links and view.home in view.topology.homes_over(each)
            for each in (way, way.reverse)
        )
        if led:
            own, end = _own_end(view, way)
            said = any(
                d.link == link and d.promoted and d.asked >= start for d in view.descriptions
            )
            data = {
                "link": link, "failover": kind,
                "error": f"{refusal.error} ({refusal.code})" if refusal else "",
                "took_place": any(p.link == link and p.time >= start for p in view.promotions),
                "promoted": own >= 0 or said, "records": end - own if own >= 0 else 1,
            }  # fmt: skip
            yield PartialFinding(
                cluster=way.destination, offset=own if own >= 0 else end, data=data
            )


def _attempts(view: PartitionView) -> Mapping[str, tuple[str, int, FailoverRefused | None]]:
    """Link -> kind and begin of the last failover over it that was refused or did not complete, and
    its refusal."""
    begun = {w.target: w for w in sorted(view.windows, key=lambda w: w.start) if w.name.fails_over}
    refused = {refusal.link: refusal for refusal in view.refusals}
    return {
        link: (
            refused[link].mode if link in refused else begun[link].fault.removeprefix("failover-"),
            begun[link].start if link in begun else 0,
            refused.get(link),
        )
        for link in sorted(begun.keys() | refused.keys())
        if link in refused or not begun[link].took_effect
    }


def _own_end(view: PartitionView, link: LinkSpec) -> tuple[int, int]:
    """The first offset of the control records with which the mirror ended, if only the
    destination's log has them (else -1), and the log's end."""
    ours, theirs = (view.canonical().get(cluster) for cluster in (link.destination, link.source))
    kept = view.guarantee.offsets_kept
    if ours is None or theirs is None or ours.damage or theirs.damage or not kept:
        return -1, -1 if ours is None else ours.end
    b, other = ours.batches, theirs.batches
    last = generations(view)[link.destination][-1]
    rows = np.flatnonzero(
        ((b.control == ABORT) | (b.control == OTHER_CONTROL))
        & b.crc_ok
        & ~native(last, b.base_offset)
    )
    at = locate(other.base_offset, b.base_offset[rows])
    both = np.flatnonzero(at >= 0)
    same = np.zeros(len(rows), np.bool_)
    same[both] = other.control[at[both]] == b.control[rows[both]]
    # The source had these records before it deleted or compacted them, so they are no end of this
    # mirror.
    gone = (at < 0) & (b.base_offset[rows] < max(theirs.begins, compacted(view, theirs)))
    rows = rows[~same & ~gone]
    return (int(b.base_offset[rows[0]]) if len(rows) else -1), ours.end


def combine(partials: Sequence[PartialFinding]) -> Iterator[Combined]:
    """The partitions that a refused or incomplete failover promoted."""
    for link, mine in sorted(grouped(partials, lambda each: each.data["link"]).items()):
        promoted = [partial for partial in mine if partial.data["promoted"]]
        if any(partial.data["took_place"] for partial in mine):
            continue
        for partial in sorted(promoted, key=lambda each: (each.topic, each.partition)):
            error = partial.data["error"]
            how = f"was refused with {error}" if error else "did not come to its end"
            extent = "full" if len(promoted) == len(mine) else "partial"
            one = Found.at(
                PARTIAL,
                partial.cluster,
                partial.offset,
                link=link,
                refused_over=link,
                failover=partial.data["failover"],
                records=partial.data["records"],
                how=how,
                extent=extent,
                promoted=len(promoted),
                partitions=len(mine),
            )
            yield partial.combined(one)


def _elsewhere(every: Mapping[str, Sequence[LogGeneration]], sends: Sends) -> Bools:
    """Sends that were not requested in the first generation of a log that was its cluster's own
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


def _in_bytes(view: PartitionView, generation: LogGeneration, log: Log) -> Iterator[Finding]:
    # Where offsets move, what clients wrote here before this log was emptied comes back from the
    # new owner.
    kept = view.guarantee.offsets_kept
    records = log.records
    mine = sends_to(view, generation.cluster) if kept else sends_of(view, generation)
    rows = np.flatnonzero(~native(generation, records.offset) & (records.uid >= 0))
    yield from examined(generation, records.offset[rows])
    yield from _came_round(view, generation, log)
    sender = planner(records.uid[rows], mine)
    strange, sender = rows[sender >= 0], sender[sender >= 0]
    for start, end in runs(
        strange, records.uid[strange], apart(generation, records.offset[strange])
    ):
        first = int(strange[start])
        yield _standby(
            view,
            mine[int(sender[start])],
            int(records.offset[first]),
            end - start,
            "in an era that is mirrored",
        )


def _came_round(view: PartitionView, generation: LogGeneration, log: Log) -> Iterator[Finding]:
    """Records of a native era that clients sent only to other clusters."""
    records, here = log.records, generation.cluster
    rows = np.flatnonzero(native(generation, records.offset) & (records.uid >= 0))
    rows = rows[~planned(records.uid[rows], sends_to(view, here))]
    if not len(rows):
        return
    every = Sends.of(view.sends)
    others = every.take(~every.says("cluster", here))
    sender = planner(records.uid[rows], others)
    rows, sender = rows[sender >= 0], sender[sender >= 0]
    for start, end in runs(rows, records.uid[rows], apart(generation, records.offset[rows])):
        uid = int(records.uid[rows[start]])
        sent = others[int(sender[start])]
        yield Found.at(
            CIRCLE,
            here,
            records.offset[rows[start]],
            records=end - start,
            uid=uid,
            how="handed to another cluster",
            sent_to=sent.cluster,
        )


def _standby(view: PartitionView, send: Send, offset: int, records: int, how: str) -> Finding:
    promoted = any(p.cluster == send.cluster for p in view.promotions)
    led_there = any(
        w.fault.startswith("failover") and w.target.endswith(f">{send.cluster}")
        for w in view.windows
    )
    if not promoted and led_there:
        return Unjudged(
            f"{send.cluster} acknowledged writes to {view.topic} but no promotion was recorded"
        )
    return Found.at(
        KIND,
        send.cluster,
        offset,
        records=records,
        how=how,
        operation=send.number,
        client=send.client,
        invoked=send.invoked,
    )


CHECK = Check(
    name="standby-isolation",
    guarantee="""While a partition is mirrored to a cluster, no client can write to it there, and no
        mirror can write to its owner.""",
    source="KIP-1279 (mirror topics are read-only; a circular mirror is refused)",
    wire="""Acknowledgements of a mirrored cluster, by the time of the first request for their
        batch.""",
    inputs={"batches", "records", "sends", "promotions"},
    anomalies=(
        AnomalyKind(
            name=PARTIAL,
            meaning="""A failover was refused at every request, or did not come to its end, and took
                effect all the same: the mirror reports a partition as promoted, or wrote its own
                end (ABORT markers, a reset) into it. The offset is the first of that, or the log's
                end.""",
            sentence="""{extent} promotion: the {failover} failover over {link} {how}, and
                {promoted} of {partitions} partitions were promoted all the same, among them {at} on
                {cluster}""",
            counted="""partition was promoted by a failover that failed|partitions were promoted by
                a failover that failed""",
            smallest="""A and B have 1, the failover over A->B is refused, and B has a reset at
                offset 1: at offset 1 on B.""",
            despite_torn=True,
        ),
        AnomalyKind(
            name=KIND,
            meaning="""A cluster that mirrored the partition acknowledged a client's write to it, or
                has one in a mirrored era.""",
            sentence="""{cluster} acknowledged a write of {client} at {at} while it was mirroring:
                {how}""",
            counted="write was accepted by a standby|writes were accepted by a standby",
            smallest="nothing was promoted, B acknowledged 9 at offset 0: at offset 0 on B.",
            despite_torn=True,
        ),
        AnomalyKind(
            name=CIRCLE,
            meaning="""A cluster was made to follow one that followed it, or its own era has a
                record that was sent to another.""",
            sentence="{cluster} got its own records back at {at}: {how}",
            alone="each round adds the records once more",
            smallest="""A->B, nothing was promoted, B acknowledged 9 at offset 0, A has it: at
                offset 0 on A.""",
            despite_torn=True,
        ),
    ),
    kernel=kernel,
    combine=combine,
    due={"mirrored"},
)

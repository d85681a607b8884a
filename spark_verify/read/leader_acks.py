"""What an acknowledgement by the leader alone (acks=1) promises: the record is in the log unless
that leader was lost, or another one elected, before the followers had it.

So it is a promise, like that of all replicas in sync, where no election can have taken the record:

- the cluster's log has the record at that offset; or
- the samples show one leader epoch from the time when the clients may first write there until after
  the answer, and the log has a later batch of that epoch (a log that has a batch has all earlier
  ones of its epoch), or no later sample shows another epoch and the leader ran until the end.

Every other acknowledgement by the leader alone counts as none: whether the record was lost by the
rules is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from linkflap.harness.model.payload import FOREIGN
from linkflap.spark_verify.checks.log_model.generations import eras_captured
from linkflap.spark_verify.checks.log_model.logs import each_at, locate
from linkflap.spark_verify.checks.log_model.outcomes import uids_of
from linkflap.spark_verify.facts.eras import FOREVER, history
from linkflap.spark_verify.facts.sends_and_reads import Send, Sends
from linkflap.spark_verify.facts.view import Bools, Ints, PartitionView, Replica


def promised(seen: PartitionView, logs: Sequence[Replica]) -> Sequence[Send]:
    """The sends, without acknowledgements by the leader alone that promise nothing. The records of
    the logs have names."""
    every = Sends.of(seen.sends)
    alone = every.column("by_leader") > 0
    if not alone.any():
        return every
    acked, (uid, send) = every.each("offsets"), uids_of(every)
    kept = np.zeros(len(every), np.bool_)
    for cluster in every.words("cluster"):
        mine = every.says("cluster", cluster) & alone
        theirs = [log for log in logs if log.cluster == cluster]
        for log in theirs:
            at = locate(log.records.offset, acked)
            there = (at >= 0) & (each_at(log.records.uid, at, FOREIGN) == uid)
            kept[send[there]] |= mine[send[there]]
        for since, until, below in _steady(seen, cluster, theirs):
            safe = _between(every, since, until)[send] & (acked >= 0) & (acked < below)
            kept[send[safe]] |= mine[send[safe]]
    void = alone & ~kept
    return [_unknown(each) if void[n] else each for n, each in enumerate(every)]


def _unknown(send: Send) -> Send:
    """The send without its acknowledgement. That of a transaction is its commit."""
    outcome = "info" if send.kind == "send" else send.outcome
    return replace(send, offsets=np.full(len(send.offsets), -1, np.int64), outcome=outcome)


def _between(sends: Sends, since: int, until: int) -> Bools:
    returned = sends.column("returned")
    return np.asarray((sends.column("invoked") >= since) & (returned >= 0) & (returned <= until))


def _steady(
    seen: PartitionView, cluster: str, logs: Sequence[Replica]
) -> Iterator[tuple[int, int, int]]:
    """From when to when a cluster's clients wrote in one leader epoch, and the offset below which
    its log must have what was written in it."""
    marks = seen.watermarks.get(cluster)
    if marks is None:
        return
    begins = sorted(p.time for p in seen.promotions if p.cluster == cluster)
    for start, end in pairwise([0, *begins, FOREVER]):
        known = (marks.time >= start) & (marks.time < end) & (marks.leader_epoch >= 0)
        of, time, returned = (
            column[known] for column in (marks.leader_epoch, marks.time, marks.returned)
        )
        if len(of):
            same = int(np.argmax(np.append(of != of[0], True)))
            led = marks.leader[known & (marks.leader >= 0)]
            always = same == len(of) and end == FOREVER
            ran_below = _of_last_leader(seen, cluster, led[-1:]) if always else -1
            below = max(ran_below, _last_of(seen, logs, int(of[0])))
            yield int(returned[0]), int(time[same - 1]), below


def _of_last_leader(seen: PartitionView, cluster: str, last: Ints) -> int:
    """The offset below which the log of a cluster is all that the `last` sampled leader had, which
    ran until the end; -1: it is another's, or the leader did not. A leader that does not notice an
    election answers samples too. A cluster that runs already gives what is below its high
    watermark."""
    log = seen.canonical().get(cluster)
    if log is None or not log.leader or (last != log.broker).any() or cluster in seen.deaths:
        return -1
    if len(history(seen.partition_facts).generations.get(cluster, ())) > 1:
        return -1
    return log.high_watermark if seen.topology.cluster(cluster).bootstrap else FOREVER


def _last_of(seen: PartitionView, logs: Sequence[Replica], epoch: int) -> int:
    """The offset of the last batch that leaders of a cluster wrote in an epoch; -1: none."""
    found: list[Ints] = [np.array([-1])]
    for log in logs:
        batches = log.batches
        for era in eras_captured(seen, log):
            if not era.source:
                offset = batches.base_offset[batches.leader_epoch == epoch]
                found.append(offset[(offset >= era.start) & (offset < era.end)])
    return int(np.concatenate(found).max())

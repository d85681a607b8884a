"""KIP-1228: with transactions V2, a marker has the epoch of the *next* transaction, so that a
duplicate of it ends that one."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.logs import markers
from linkflap.chaos.cases.tools.record_batch import ProducerIdentity
from linkflap.chaos.cases.wire_transactions import WireTransactional


@case("KIP-1228", ONE, claim={"late": True}, control={"late": False})
def kip_1228(bench: Bench, *, late: bool) -> Observation:
    """T1 is aborted. Its ABORT arrives again while T2 is open. T2 is committed, and the commit is
    acknowledged."""
    topic = bench.topic()
    writer = WireTransactional(bench)
    writer.write((topic, 0), b"first", version=12)
    writer.end_v2(commit=False)
    (sent,) = markers(bench.log(topic))
    writer.write((topic, 0), b"second", version=12)
    of_the_second = writer.producer.epoch
    who = ProducerIdentity(id=sent.producer_id, epoch=sent.producer_epoch)
    answered = (
        writer.wire.write_markers((topic, 0), who, commit=False, transactions=2) if late else ""
    )
    committed = writer.end_v2(commit=True)
    read = [value.decode() for _, value in bench.read(topic)]
    facts = {
        "epoch_of_the_marker": sent.producer_epoch,
        "epoch_of_the_second_transaction": of_the_second,
        "late_marker": answered,
        "commit": committed,
        "read_committed": read,
        "markers": [one.words for one in markers(bench.log(topic))],
    }
    return Observation(shown=committed == "none" and "second" not in read, facts=facts)

"""KIP-360: a producer recovers with its id and epoch, and is refused if it was replaced
meanwhile."""

from __future__ import annotations

from datetime import timedelta

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.wire import messages


@case("KIP-360-stale-recovery", ONE, claim={"names_itself": True}, control={"names_itself": False})
def producer_recovery(bench: Bench, *, names_itself: bool) -> Observation:
    """The old producer's InitProducerId arrives after its successor's."""
    topic = bench.topic()
    old = WireTransactional(bench)
    new = WireTransactional(bench)
    m = messages.request("init_producer_id", 4)
    answer = old.wire.call(
        "init_producer_id",
        4,
        m.InitProducerIdRequest(
            transactional_id=old.id,
            transaction_timeout=timedelta(seconds=60),
            producer_id=old.producer.id if names_itself else -1,
            producer_epoch=old.producer.epoch if names_itself else -1,
        ),
    )
    added = new.add((topic, 0))
    facts = {
        "recovery_of_the_old": str(answer.error_code.name),
        "epochs_old_new": [old.producer.epoch, new.producer.epoch],
        "epoch_given": int(answer.producer_epoch),
        "add_partitions_of_the_new": added,
    }
    return Observation(
        shown=answer.error_code == messages.Error.none and added != "none", facts=facts
    )

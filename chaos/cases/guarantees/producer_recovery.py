"""KIP-360: a producer recovers with its id and epoch, and is refused if it was replaced
meanwhile."""

from __future__ import annotations

from datetime import timedelta
from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.wire_transactions import WireTransactional
from linkflap.harness.wire import messages


def _recovered(bench: Bench, *, names_itself: bool) -> Observation:
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


CASE = Case(
    name="KIP-360-stale-recovery",
    title="A producer that was replaced cannot recover and fence its successor",
    kind="guarantee",
    claim_text=(
        "Anomaly: after another producer has taken over its transactional id, a producer "
        "requests a new epoch and gets one, and the successor is fenced."
    ),
    sources=("KIP-360: InitProducerId with the current producer id and epoch",),
    expected=(Expected(shows=False, basis="runs"),),
    schedule=(
        "1. A takes a transactional id; 2. B takes it; 3. A requests a new epoch with its own id "
        "and epoch; 4. B writes"
    ),
    reproduced="A gets an epoch, and B is refused",
    control_text=(
        "A's request has no id and epoch, as before KIP-360: A gets an epoch, and B is fenced"
    ),
    refuted="A gets an epoch",
    topology=ONE,
    claim=partial(_recovered, names_itself=True),
    control=partial(_recovered, names_itself=False),
    control_shows=True,
    clients=("wire",),
    protocols=("", "V1"),
)

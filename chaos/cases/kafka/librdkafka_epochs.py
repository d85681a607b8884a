"""librdkafka 5423: without the client side of KIP-890, consecutive transactions share one epoch,
even on clusters with transactions V2."""

from __future__ import annotations

from functools import partial

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Case, Expected, Observation
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.clients import LibrdkafkaProducer, Transactional
from linkflap.chaos.cases.tools.java import JavaTransactional
from linkflap.chaos.cases.tools.logs import markers
from linkflap.harness.model.wait import until

TRANSACTIONS = 3


def _committed(bench: Bench, *, java: bool) -> Observation:
    topic, name = bench.topic(), bench.name("writer")
    made: Transactional = (
        JavaTransactional(bench.java(), bench.bootstrap(), name, {})
        if java
        else LibrdkafkaProducer(bench.bootstrap(), name, {})
    )
    bench.closing(made)
    for number in range(TRANSACTIONS):
        made.begin()
        made.send(topic, b"%d" % number)
        made.flush()
        made.commit()
    until(
        lambda: len(markers(bench.log(topic))) == TRANSACTIONS,
        within=WITHIN,
        what="the markers",
        every=0.1,
    )
    epochs = [one.producer_epoch for one in markers(bench.log(topic))]
    level = bench.ask(bench.up()).features().get("transaction.version", 0)
    facts = {"epochs_of_the_markers": epochs, "transaction.version": level}
    return Observation(shown=level >= 2 and len(set(epochs)) < len(epochs), facts=facts)


CASE = Case(
    name="librdkafka-5423",
    title=(
        "On a cluster with transactions V2, all transactions of a librdkafka producer have the "
        "same epoch"
    ),
    kind="limit",
    claim_text=(
        "librdkafka lacks the client side of KIP-890. It sends AddPartitionsToTxn and EndTxn "
        "version 3, so the epoch does not rise with each transaction. Anomalies that "
        "transactions V2 fix for Java clients, such as a late EndTxn (KAFKA-17754), remain."
    ),
    sources=("librdkafka issue 5423: support of KIP-890, open", "KIP-890, part 2"),
    expected=(Expected(shows=True, since="4.0.0", basis="runs"),),
    schedule=(
        f"1. a cluster with transaction.version 2; 2. {TRANSACTIONS} transactions are committed"
    ),
    reproduced="two COMMIT markers with the same epoch",
    control_text="the Java client of the release: every marker has an epoch of its own",
    refuted="epochs that rise with each transaction",
    topology=ONE,
    claim=partial(_committed, java=False),
    control=partial(_committed, java=True),
    oldest="4.0.0",
)

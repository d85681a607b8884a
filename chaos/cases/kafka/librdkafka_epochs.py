"""librdkafka 5423: without the client side of KIP-890, consecutive transactions share one epoch,
even on clusters with transactions V2."""

from __future__ import annotations

from linkflap.chaos.cases.bench import Bench
from linkflap.chaos.cases.bench_clusters import WITHIN
from linkflap.chaos.cases.case import Observation, case
from linkflap.chaos.cases.clusters import ONE
from linkflap.chaos.cases.tools.clients import LibrdkafkaProducer, Transactional
from linkflap.chaos.cases.tools.java import JavaTransactional
from linkflap.chaos.cases.tools.logs import markers
from linkflap.harness.model.wait import until

TRANSACTIONS = 3


@case("librdkafka-5423", ONE, claim={"java": False}, control={"java": True})
def librdkafka_epochs(bench: Bench, *, java: bool) -> Observation:
    """librdkafka 5423: without the client side of KIP-890, consecutive transactions share one
    epoch, even on clusters with transactions V2."""
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

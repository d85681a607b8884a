"""exactly-once: the outputs of a relay and the offsets of its group are one transaction (KIP-98,
KIP-447).

A relay (consume, transform, produce, offsets in the transaction) records for every output which
input it was made from. On its cluster, each input between the group's first offset there and its
last has exactly one committed output. The last offset follows from the transactions that were
committed there, by the relay's own word or by the bytes, and from the group's sampled offsets. A
sampled offset is not below a transaction that the same producer has followed by another: the next
cannot begin before the markers of the previous one are written, also those of the offsets (KIP-98,
CONCURRENT_TRANSACTIONS). But once a fault has reached brokers of the cluster, a sample may be an
earlier offset of the group (KAFKA-15910). Without any sample of the group, the relays' report of
their own offsets cannot be verified: that is unknown.

No mirror promises this over a failover, because outputs, inputs and group offsets are mirrored
independently. The check compares payload ids. An input was repeated if it was made into an output
on the destination although the source's output had arrived already. An input was lost if the group
has passed it on the destination and its output was lost with the source. Both are counted
separately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from linkflap.harness.model.scenario import Scenario
from linkflap.spark_verify.checks.base import (
    AnomalyKind,
    Check,
    Combined,
    Finding,
    PartialFinding,
    Unjudged,
)
from linkflap.spark_verify.checks.parts.generation_clients import sends_of
from linkflap.spark_verify.checks.parts.generations import every, log_of
from linkflap.spark_verify.checks.parts.relay_outputs import (
    Key,
    Made,
    expected_outputs,
    over_a_failover,
)
from linkflap.spark_verify.checks.parts.relayed import (
    RELAY,
    by_group_partition,
    groups_of_relays,
    inputs_of_group,
    outputs_of_inputs,
    relay_partial,
)
from linkflap.spark_verify.facts.partition_facts import Promotion
from linkflap.spark_verify.facts.send_columns import Sends
from linkflap.spark_verify.facts.view import Origin, PartitionView


def kernel(view: PartitionView) -> Sequence[Finding]:
    """The relays' records in each cluster's last log: the inputs of every group, and the
    outputs."""
    findings: list[Finding] = []
    groups = groups_of_relays(view)
    sends = Sends.of(view.sends)
    made = by_group_partition(sends.take(~sends.says("group", "") & ~sends.says("input_topic", "")))
    for generation in [each for each in every(view) if each.last and (groups or made)]:
        log = log_of(view, generation)
        if log is None or not log.whole:
            if log is not None:
                findings.append(
                    Unjudged(
                        reason=(
                            f"the log of {view.topic}-{view.partition} on {generation.cluster} is "
                            "torn"
                        )
                    )
                )
            # Nobody can tell what was made of these inputs there.
            findings += [relay_partial(generation, key, {"of": key, "torn": True}) for key in made]
            continue
        for group in groups:
            findings += inputs_of_group(view, generation, log, group)
        here = sends_of(view, generation).column("number")
        findings += [
            outputs_of_inputs(view, generation, log, key, mine, here) for key, mine in made.items()
        ]
    return findings


def combine(partials: Sequence[PartialFinding]) -> Sequence[Combined]:
    """Compares the inputs of every partition with their outputs."""
    inputs: dict[Key, Mapping[str, Any]] = {}
    outputs: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
    for partial in partials:
        data: Mapping[str, Any] = partial.data
        group, topic, partition = data["of"] if "of" in data else data["inputs_of"]
        if "of" in data:
            outputs[group, topic, partition, partial.cluster].append(data)
        else:
            inputs[group, topic, partition, partial.cluster] = data
    made = {
        key: Made(parts=parts, torn=any("torn" in each for each in parts))
        for key, parts in outputs.items()
    }
    return [
        Combined(found=found, topic=key[1], partition=key[2])
        for key, input_log in sorted(inputs.items(), key=lambda entry: entry[0])
        if not made.get(key, Made()).torn
        for found in (
            *expected_outputs(key, input_log, made.get(key, Made())),
            *over_a_failover(key, input_log, inputs, made),
        )
    ]


def _due(
    scenario: Scenario, promotions: Sequence[Promotion]
) -> set[tuple[str, Origin | Literal["checkpoints"]]]:
    """Inputs on the relays' first cluster; and samples of their group there, and on every later
    cluster. A cluster that follows another again is judged by its new log: the records that relays
    read there before may be mirrored by then, or gone.
    """
    relays = {workload.home for workload in scenario.workloads if workload.kind == RELAY}
    follow = {fault.on.source for fault in scenario.schedule if fault.name.reverses}
    due: set[tuple[str, Origin | Literal["checkpoints"]]] = {
        (home, "native") for home in relays - follow
    }
    for promotion in sorted(promotions, key=lambda p: p.time):
        relays |= {promotion.cluster} if promotion.source in relays else set()
    return due | {(cluster, "checkpoints") for cluster in relays}


CHECK = Check(
    name="exactly-once",
    guarantee=(
        "A relay makes exactly one committed output of each record that its group has passed."
    ),
    source="KIP-98 (offsets in the transaction); KIP-447 (fencing by the group's metadata)",
    inputs=frozenset({"batches", "records", "sends", "reads", "groups", "promotions"}),
    anomalies=(
        AnomalyKind(
            name="input-lost",
            meaning=(
                "The group has passed a record without an output: its offset was committed "
                "without the output."
            ),
            sentence=(
                "the relay group {group} passed {who} of {at} on {cluster} without a committed "
                "output"
            ),
            counted="input has no output|inputs have no output",
            smallest=(
                "A has inputs 1 2; a transaction made 9 of 2 and committed position 2, the group "
                "began at 0: at offset 0."
            ),
        ),
        AnomalyKind(
            name="output-duplicated",
            meaning=(
                "One record has two committed outputs on one cluster: an offset was lost, an "
                "output was not."
            ),
            sentence="two committed outputs were made from {who} of {at} on {cluster}",
            counted="output was made twice|outputs were made twice",
            smallest=(
                "A has input 1; two transactions made 8 and 9 of it, and committed: at the input's "
                "offset."
            ),
        ),
        AnomalyKind(
            name="output-without-input",
            meaning=("The input of a committed output is missing, or was aborted."),
            sentence="{cluster} has an output at {output} that was made from no record at {at}",
            counted="output has no input|outputs have no input",
            smallest=(
                "A has input 1, aborted; a transaction made 9 of it, and committed: at the input's "
                "offset."
            ),
        ),
        AnomalyKind(
            name="offset-behind",
            meaning=(
                "The group's committed offset is below the one that a completed transaction "
                "had committed."
            ),
            sentence=(
                "the group {group} on {cluster} is at {committed} in {at}, behind outputs that are "
                "committed"
            ),
            alone="a relay that begins there makes those outputs again",
            smallest=(
                "two transactions of one producer committed positions 1 and 2; then the group is at"
                " 0: at offset 0."
            ),
        ),
        AnomalyKind(
            name="output-repeated-by-failover",
            meaning=(
                "An output was made again after a failover, although the source's output had "
                "arrived."
            ),
            sentence="outputs of {who} of {at} were made again on {cluster} after the failover",
            counted="output was made again|outputs were made again",
            smallest=(
                "A and B have 1, and 9 made of it on A; B is promoted, the group begins at 0, 10 is"
                " made of 1: at offset 0."
            ),
        ),
        AnomalyKind(
            name="output-lost-by-failover",
            meaning=(
                "After a failover the group continues behind a record whose output on the "
                "source was not mirrored."
            ),
            sentence="outputs of {who} of {at} did not arrive on {cluster} before the failover",
            counted="output was left behind|outputs were left behind",
            smallest=(
                "A has 1, and 9 made of it; B has 1 alone; B is promoted, and the group begins "
                "there at 1: at offset 0."
            ),
        ),
    ),
    follows=frozenset(
        {
            "lost-write",
            "duplicate",
            "torn-transaction",
            "commit-aborted",
            "group-offsets",
            "aborted-read",
            "provenance",
        }
    ),
    kernel=kernel,
    combine=combine,
    unit="inputs",
    due_at=_due,
    when=(
        "native ones where relays begin, unless that cluster is to follow another later; and "
        "samples of their group there and wherever they go on"
    ),
    complete=frozenset({"sends", "reads", "groups", "promotions"}),
    only_relays=True,
)

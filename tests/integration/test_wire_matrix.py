"""The mutation matrix with the writers recorded on the wire. What must be found of a run's own
history must be found of the recorder's, and the run has the same verdict. Where it is invalid
other checks may find the mutation, too: a batch with another producer id, epoch or sequence is
another batch, so that the one that was acknowledged is missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from linkflap.spark_verify.verdict.judge import Judgement
from tests.faithful.mutations import CATALOGUE
from tests.faithful.spec import Spec, spec
from tests.faithful.stories import story
from tests.faithful.wire import on_the_wire, recordable
from tests.integration.test_mutation_matrix import SEED, false_alarms, in_full, wrong

pytestmark = [pytest.mark.spark, pytest.mark.nightly]
_HIDDEN: Final[Mapping[str, str]] = {
    "a reader's record is named by what the log has at its offset": """read-what-is-not-there
        readers-disagree other-payloads-before-the-truncation other-payloads-after-the-truncation
        truncated-after-it-was-read share-group-got-another-record""",
    "a program chooses its timestamps": """beginning-lost-where-offsets-move
        beginning-lost-inside-a-segment a-type-of-timestamp-that-the-topic-never-had
        a-type-of-timestamp-that-the-mirrored-topic-never-had""",
    "a producer id of a cluster is one producer": "id-of-another-producer",
    "what a record must contain is not known": """records-swapped batches-swapped
        value-changed-everywhere timestamp-changed mirrored-beyond-the-source""",
    "the key of a record that is gone is not known": """key-lost-at-the-source-by-compaction
        key-lost-at-the-source-of-mm2-by-compaction tail-lost-behind-mm2-by-compaction
        compacted-while-mirrored compacted-while-mirrored-by-mm2
        compacted-behind-mm2-that-may-have-repeated""",
    "a record that was not seen on the wire is unknown": "nobody-sent-it nobody-planned-it",
    "a program's progress is that of its topics": """readers-with-nothing-to-read
        producer-fenced-by-nobody""",
    "brokers set the time, and a batch without an id and an answer has no name then": """
        clocks-apart clocks-ahead clocks-apart-and-open""",
    "a record that an election cost is known by its offset and producer id alone": """
        lost-beside-an-unclean-election""",
}
HIDDEN: Final = {name: why for why, names in _HIDDEN.items() for name in names.split()}
"""Mutations that such a history does not show, or not alike -> why."""
NAMES: Final = [
    name
    for name, mutation in CATALOGUE.items()
    if name not in HIDDEN and recordable(spec(SEED, **mutation.on))
]
HIDDEN_ON_THE_WIRE: Final = [
    name for name in HIDDEN if recordable(spec(SEED, **CATALOGUE[name].on))
]
_LOST_BY_THE_RULES: Final[Mapping[str, str]] = {
    "an election took what its leader alone had acknowledged": """lost-by-an-unclean-election
        lost-after-an-unclean-election lost-on-another-cluster-than-the-election""",
    "no sample shows who led when it was acknowledged": """native-batch-lost
        acknowledged-at-an-old-offset""",
}
LOST_BY_THE_RULES: Final = {
    n: why for why, names in _LOST_BY_THE_RULES.items() for n in names.split()
}
"""Mutations that are none with acks=1 -> why."""
WITH_ONE_ACK: Final = [
    name
    for name in NAMES
    if any(kind.startswith(("lost-write", "ghost-ack")) for kind in CATALOGUE[name].must)
]
FAITHFUL: Final[Mapping[int, Spec]] = {
    seed: drawn for seed in range(45) if recordable(drawn := spec(seed, relay=False))
}
UNKNOWN: Final[Mapping[int, str]] = {
    41: """order-equality is unknown: several records of B's A.orders-0 have the same contents, so
        that which of them C has, and which twice, cannot be known""",
}
"""Seeds of faithful stories with a check that cannot know -> what it says. In 41 MirrorMaker 2 has
written records to B twice, and B has deleted the first copies."""


@pytest.fixture(scope="module")
def judged(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> Mapping[str | int, Judgement]:
    """Mutations and faithful stories, recorded on the wire, by name or seed."""
    folder = tmp_path_factory.mktemp("wire")
    runs: dict[str | int, Path] = {}
    for name in [*NAMES, *HIDDEN_ON_THE_WIRE]:
        made, afterwards = CATALOGUE[name].made(SEED)
        runs[name] = on_the_wire(made).write(folder / name)
        if afterwards is not None:
            afterwards(runs[name])
    for name in WITH_ONE_ACK:
        made, _ = CATALOGUE[name].made(SEED)
        runs[f"{name} acks=1"] = on_the_wire(made, acks=1).write(folder / f"{name}-1")
    for seed, drawn in FAITHFUL.items():
        runs[seed] = on_the_wire(story(drawn)).write(folder / str(seed))
    return dict(zip(runs, in_full(list(runs.values()), spark), strict=True))


def test_every_hidden_name_is_a_mutation() -> None:
    assert HIDDEN.keys() <= CATALOGUE.keys()


@pytest.mark.parametrize("name", NAMES)
def test_a_mutation_is_found(judged: Mapping[str | int, Judgement], name: str) -> None:
    assert complaints(name, judged[name]) == [], judged[name].document["reason"]


@pytest.mark.parametrize("name", HIDDEN_ON_THE_WIRE)
def test_a_mutation_that_is_declared_hidden_is_hidden(
    judged: Mapping[str | int, Judgement], name: str
) -> None:
    assert complaints(name, judged[name]) != []


@pytest.mark.parametrize("name", WITH_ONE_ACK)
def test_a_lost_record_that_its_leader_alone_acknowledged_is_found_unless_it_may_be_lost(
    judged: Mapping[str | int, Judgement], name: str
) -> None:
    wrong = complaints(name, judged[f"{name} acks=1"])
    assert bool(wrong) is (name in LOST_BY_THE_RULES), wrong


def complaints(name: str, judgement: Judgement) -> Sequence[str]:
    """The errors in the judgement of a mutation. An invalid run may have further findings."""
    mutation = CATALOGUE[name]
    found = wrong(mutation, judgement)
    invalid = mutation.verdict == "invalid"
    return [each for each in found if not (invalid and each.endswith("is a false alarm"))]


@pytest.mark.parametrize("seed", FAITHFUL)
def test_a_faithful_run_is_valid(judged: Mapping[str | int, Judgement], seed: int) -> None:
    """Where brokers set the time, batches without an id and an answer are unknown."""
    drawn = FAITHFUL[seed]
    unknown = " ".join(UNKNOWN.get(seed, "nothing").split())
    if drawn.append_time:
        unknown = "provenance is unknown: "
    found = false_alarms(judged[seed], drawn)
    assert [each for each in found if not each.startswith(unknown)] == []
    assert seed not in UNKNOWN or found

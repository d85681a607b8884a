"""Mistakes in scenario files are reported with their line and the nearest known name."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.chaos.scenario_file import read
from linkflap.harness.model.errors import InputError
from tests.unit.scenario_text import GOOD, made

MISTAKES = [
    ("schema = 1", "schema = 2", "schema is 2; this linkflap reads schema = 1"),
    ('name = "mine"', 'name = "../mine"', "name is wrong: expected `str` matching regex"),
    ("duration = 5.0", "duration = 0.5", "duration is wrong: expected `float` >= 1.0"),
    (
        "duration = 5.0",
        "durations = 5.0",
        "there is no 'durations' here (did you mean 'duration'?)",
    ),
    ('topology = "A:3->B"', 'topology = "A:3->"', "topology 'A:3->', character 6"),
    (
        'kind = "shadow"',
        'kind = "shadows"',
        "no mirror 'shadows' (did you mean 'shadow'?); known: cluster-mirroring, command, mm2",
    ),
    (
        'options = { producer_ids = "keep" }',
        'options = { producer_ids = "kept" }',
        "option producer_ids of mirror shadow is 'kept'",
    ),
    ("partitions = 3", 'partitions = "3"', "topics.partitions is wrong: expected `int`, got `str`"),
    ('"cleanup.policy" =', '"cleanup policy" =', "not the name of a Kafka setting"),
    (
        '"cleanup.policy" =',
        '"cleanup.polices" =',
        "no setting 'cleanup.polices' of a topic (did you mean 'cleanup.policy'?)",
    ),
    (
        '"auto.create.topics.enable"',
        '"auto.creat.topics.enable"',
        "of a broker (did you mean 'auto.create.topics.enable'?)",
    ),
    (
        '"auto.create.topics.enable"',
        '"retention.ms"',
        "Kafka has no setting 'retention.ms' of a broker",
    ),
    ("[cluster.A.config]", "[cluster.D.config]", "there is no cluster 'D'; known: A, B"),
    (
        '"auto.create.topics.enable" = true',
        'listeners = "PLAINTEXT://0.0.0.0:9092"',
        "listeners changes",
    ),
    ("clients = 2", "clients = 0", "workload.0.clients is wrong: expected `int` >= 1"),
    ("rate = 5.0", "rates = 5.0", "no option of transactional 'rates' (did you mean 'rate'?)"),
    ('home = "A"', 'home = "C"', "no cluster 'C'; known: A, B"),
    ('fault = "link-latency"', 'fault = "link-latencies"', "(did you mean 'link-latency'?)"),
    (
        "latency = 100",
        "latncy = 100",
        "no option of link-latency 'latncy' (did you mean 'latency'?)",
    ),
    ("latency = 100", "latency = []", "fault.0.options.latency is wrong"),
    ('id = "slow"', 'id = "../../slow"', "fault.0.id is wrong: expected `str` matching regex"),
    ("at = 1.0", "at = -1.0", "fault.0.at is wrong: expected `float` >= 0.0"),
    (
        'when = "after:slow and',
        'when = "after:slov and',
        "no fault with the id 'slov' (did you mean 'slow'?)",
    ),
    (
        'when = "after:slow and open-t',
        'when = "after:slow and opening-t',
        "no trigger 'opening-transactions' (did you mean",
    ),
    ('id = "failover"', 'id = "slow" # again', "two faults have the id 'slow'"),
    ('target = "A->B"', 'target = "A->C"', "link-latency cannot be applied to 'A->C'"),
    (
        "rpo_records = 100",
        "rpo_record = 100",
        "there is no 'rpo_record' here (did you mean 'rpo_records'?)",
    ),
]


@pytest.mark.parametrize(
    ("before", "after", "says"), MISTAKES, ids=[after for _, after, _ in MISTAKES]
)
def test_a_mistake_is_named_with_its_line(
    before: str, after: str, says: str, tmp_path: Path
) -> None:
    assert before in GOOD
    text = GOOD.replace(before, after, 1)
    line = text[: text.index(after)].count("\n") + 1
    with pytest.raises(InputError) as refused:
        read(made(tmp_path, text), seed=1)
    assert f"mine.toml, line {line}: " in str(refused.value)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("left_out", "says"),
    [("schema = 1", "schema is missing"), ('name = "mine"', "'name' is missing; add name = ")],
)
def test_what_is_missing_is_named(left_out: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as refused:
        read(made(tmp_path, GOOD.replace(left_out, "", 1)), seed=1)
    assert f"mine.toml, line 1: {says}" in str(refused.value)

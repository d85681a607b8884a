"""docs/matrix.md, played: every mutation is found by what must find it and by nothing else, and faithful runs are valid.

All runs in one Spark job. The nightly ones are of seeds that nobody has seen; a failure names the seed, and
`stories.story(stories.spec(seed))` is the run.
"""

from __future__ import annotations

import random

import pytest

from harness.model.verdict import Verdict
from spark_verify.verify import verify
from tests.faithful.mutations import CATALOGUE
from tests.faithful.spec import spec
from tests.faithful.stories import story

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.xdist_group("spark")]

FAITHFUL = range(48)
SEED = 1
NIGHTLY_RUNS, NIGHTLY_SEEDS = 1000, 5


@pytest.fixture(scope="module")
def judged(tmp_path_factory, spark):
    """Every mutation in a story of one seed, and faithful stories: name or seed -> judgement."""
    folder = tmp_path_factory.mktemp("matrix")
    runs = {mutation.name: written(mutation, SEED, folder / mutation.name) for mutation in CATALOGUE.values()}
    runs |= {seed: story(spec(seed)).write(folder / str(seed)) for seed in FAITHFUL}
    return dict(zip(runs, verify(list(runs.values()), spark=spark), strict=True))


def written(mutation, seed, folder):
    made, afterwards = mutation.made(seed)
    made.write(folder)
    if afterwards is not None:
        afterwards(folder)
    return folder


def wrong(mutation, judgement) -> list[str]:
    """What of a mutation's declaration does not hold."""
    told = {f"{a.check}/{a.kind}" for a in judgement.anomalies}
    violations = {f"{a.check}/{a.kind}" for a in judgement.anomalies if not a.allowed}
    unknown = {c.name for c in judgement.checks if c.verdict is Verdict.UNKNOWN}
    crashed = [c.reason for c in judgement.checks if "crashed" in c.reason]
    return [
        *(f"{kind} was not found" for kind in sorted(mutation.must - told)),
        *(f"{kind} is a false alarm" for kind in sorted(violations) if not mutation.permits(kind)),
        *(f"{name} is not unknown" for name in sorted(mutation.unknown - unknown)),
        *([] if judgement.verdict == mutation.verdict else [f"{judgement.verdict}, not {mutation.verdict}"]),
        *crashed,
    ]


HONESTLY_OPEN = ("whose start was deleted", "compaction, or loss", "where a log is compacted")
"""What cannot be known of a faithful run: what was mirrored of a source that lost its beginning; what compaction took."""


def false_alarms(judgement) -> list[str]:
    """What is said against a faithful run."""
    return [
        f"{c.name} is {c.verdict}: {c.reason}"
        for c in judgement.checks
        if c.verdict is Verdict.INVALID or (c.verdict is Verdict.UNKNOWN and not any(each in c.reason for each in HONESTLY_OPEN))
    ]


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_mutation_is_found_by_what_must_find_it_and_by_nothing_else(judged, name):
    assert wrong(CATALOGUE[name], judged[name]) == [], judged[name].document["reason"]


@pytest.mark.parametrize("seed", FAITHFUL)
def test_a_faithful_run_is_valid(judged, seed):
    assert false_alarms(judged[seed]) == []


@pytest.mark.nightly
def test_a_thousand_faithful_runs_that_nobody_has_seen(tmp_path, spark):
    first = random.SystemRandom().randrange(10**9)
    seeds = range(first, first + NIGHTLY_RUNS)
    runs = [story(spec(seed)).write(tmp_path / str(seed)) for seed in seeds]
    found = {seed: false for seed, each in zip(seeds, verify(runs, spark=spark), strict=True) if (false := false_alarms(each))}
    assert found == {}


@pytest.mark.nightly
def test_every_mutation_in_runs_that_nobody_has_seen(tmp_path, spark):
    first = random.SystemRandom().randrange(10**6)
    todo = [(mutation, first + i) for mutation in CATALOGUE.values() for i in range(NIGHTLY_SEEDS)]
    runs = [written(mutation, seed, tmp_path / f"{mutation.name}-{seed}") for mutation, seed in todo]
    judged = zip(todo, verify(runs, spark=spark), strict=True)
    assert {(m.name, seed): told for (m, seed), each in judged if (told := wrong(m, each))} == {}

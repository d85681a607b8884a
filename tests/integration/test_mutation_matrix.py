"""docs/matrix.md, played: every mutation is found by its checks and by no other, and faithful runs
are valid.

All runs in one Spark job. The nightly ones are of seeds never used before; a failure names the
seed, and `stories.story(stories.spec(seed))` is the run.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from linkflap.harness.model.verdict import Verdict
from linkflap.spark_verify.checks import REGISTRY
from linkflap.spark_verify.verdict import run_checks
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verdict.sentences import kind_of
from linkflap.spark_verify.verify import verify
from tests.faithful.mutations import CATALOGUE
from tests.faithful.mutations.base import Mutation
from tests.faithful.spec import Spec, spec
from tests.faithful.stories import story

pytestmark = pytest.mark.spark

TRUNCATING = {
    "mirror": "shadow",
    "forced": True,
    "options": {"open_transactions": "truncate-stable"},
    "overlap": True,
}
FAITHFUL: dict[str | int, Spec] = {seed: spec(seed) for seed in range(45)}
FAITHFUL |= {
    f"truncated-{shape}": spec(1, shape=shape, **TRUNCATING)
    for shape in ("failover", "round-trip", "chain")
}
FAITHFUL |= {
    f"program-{shape}": spec(1, shape=shape, relay=True, program=True, deaths=False)
    for shape in ("failover", "round-trip")
}
"""Cuts that open what had ended are seldom among the others."""
SEED = 1
NIGHTLY_RUNS, NIGHTLY_SEEDS = 1000, 5


@pytest.fixture(scope="module")
def judged(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession
) -> dict[str | int, Judgement]:
    """Every mutation in a story of one seed, and faithful stories, by name or seed -> judgement,
    with all reasons in full."""
    folder = tmp_path_factory.mktemp("matrix")
    runs: dict[str | int, Path] = {
        mutation.name: written(mutation, SEED, folder / mutation.name)
        for mutation in CATALOGUE.values()
    }
    runs |= {name: story(drawn).write(folder / str(name)) for name, drawn in FAITHFUL.items()}
    return dict(zip(runs, in_full(list(runs.values()), spark), strict=True))


def in_full(runs: list[Path], spark: SparkSession) -> list[Judgement]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(run_checks, "MOST_REASONS", 10**6)
        return verify(runs, spark=spark)


def written(mutation: Mutation, seed: int, folder: Path) -> Path:
    made, afterwards = mutation.made(seed)
    made.write(folder)
    if afterwards is not None:
        afterwards(folder)
    return folder


def wrong(mutation: Mutation, judgement: Judgement) -> list[str]:
    """The parts of a mutation's declaration that do not hold."""
    found = {f"{a.check}/{a.kind}" for a in judgement.anomalies}
    violations = {f"{a.check}/{a.kind}" for a in judgement.anomalies if not a.allowed}
    unknown = {c.name for c in judgement.checks if c.verdict is Verdict.UNKNOWN}
    crashed = [c.reason for c in judgement.checks if "crashed" in c.reason]
    return [
        *(f"{kind} was not found" for kind in sorted(mutation.must - found)),
        *(f"{kind} is a false alarm" for kind in sorted(violations) if not mutation.permits(kind)),
        *(f"{name} is not unknown" for name in sorted(mutation.unknown - unknown)),
        *(
            []
            if judgement.verdict == mutation.verdict
            else [f"{judgement.verdict}, not {mutation.verdict}"]
        ),
        *crashed,
    ]


HONESTLY_OPEN: tuple[tuple[str, str, dict[str, object]], ...] = (
    (
        "order-equality",
        r"\d+ mirrored records are not in the log of [AB], whose start was deleted",
        {"deleted": True, "mirror": "mm2"},
    ),
    *(
        (
            name,
            (
                r"\d+ records on C came again, out of order, or never: so may B have had them,"
                r" whose start was deleted"
            ),
            {
                "deleted": True,
                "flap": True,
                "shape": "chain",
                "options": {"delivery": "at-least-once"},
            },
        )
        for name in ("order-equality", "duplicate")
    ),
    (
        "sequence-continuity",
        r"\d+ sequences of [AB] break where offsets are missing: compaction, or loss",
        {"shape": "copied"},
    ),
    (
        "replica-agreement",
        r"\d+ offsets of [AB]'s A\.\w+-\d are missing, first \d+: compaction, or loss",
        {"shape": "copied"},
    ),
)
"""The unknowns of a faithful run: check, the whole reason, and the required story. Everything else
is a false alarm."""


def false_alarms(judgement: Judgement, drawn: Spec) -> list[str]:
    """The findings against a faithful run."""
    return [
        f"{check.name} is {check.verdict}: {reason}"
        for check in judgement.checks
        if check.verdict in (Verdict.INVALID, Verdict.UNKNOWN)
        for reason in check.reason.split("; ")
        if check.verdict is Verdict.INVALID or not honestly_open(check.name, reason, drawn)
    ]


def honestly_open(check: str, reason: str, drawn: Spec) -> bool:
    return any(
        check == name
        and re.fullmatch(words, reason)
        and all(getattr(drawn, field) == value for field, value in story.items())
        for name, words, story in HONESTLY_OPEN
    )


def test_only_what_cannot_be_known_is_let_through() -> None:
    copied, kept = spec(1, shape="copied"), spec(1, shape="pair", deleted=False)
    assert honestly_open(
        "sequence-continuity",
        "2 sequences of A break where offsets are missing: compaction, or loss",
        copied,
    )
    assert not honestly_open(
        "sequence-continuity",
        "2 sequences of A break where offsets are missing: compaction, or loss",
        kept,
    )
    assert not honestly_open(
        "lost-write",
        "2 sequences of A break where offsets are missing: compaction, or loss",
        copied,
    )
    lost_beginning = "2 mirrored records are not in the log of A, whose start was deleted"
    deleted = spec(1, shape="pair", deleted=True, mirror="mm2")
    assert honestly_open("order-equality", lost_beginning, deleted)
    assert not honestly_open("order-equality", lost_beginning, kept)
    assert not honestly_open(
        "order-equality", lost_beginning, spec(1, shape="pair", deleted=True, mirror="shadow")
    )


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_mutation_is_found_by_what_must_find_it_and_by_nothing_else(
    judged: dict[str | int, Judgement], name: str
) -> None:
    assert wrong(CATALOGUE[name], judged[name]) == [], judged[name].document["reason"]


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_anomaly_has_the_sentence_of_its_kind(
    judged: dict[str | int, Judgement], name: str
) -> None:
    """A sentence needs the evidence that it names; without it, only the kind's meaning would be
    left."""
    found = set()
    for row in cast(list[dict[str, Any]], judged[name].document["anomalies"]):
        kind, at = (
            kind_of(row["check"], row["kind"], REGISTRY),
            f"{row['cluster']} {row['topic']}-{row['partition']}",
        )
        if kind is not None and kind.sentence and row["sentence"].startswith((f"{at}:", f"{at} @")):
            found.add(f"{row['check']}/{row['kind']}: {row['sentence']}")
    assert found == set()


@pytest.mark.parametrize("name", FAITHFUL)
def test_a_faithful_run_is_valid(judged: dict[str | int, Judgement], name: int) -> None:
    assert false_alarms(judged[name], FAITHFUL[name]) == []


@pytest.mark.nightly
def test_a_thousand_new_faithful_runs(tmp_path: Path, spark: SparkSession) -> None:
    first = random.SystemRandom().randrange(10**9)
    seeds = range(first, first + NIGHTLY_RUNS)
    runs = [story(spec(seed)).write(tmp_path / str(seed)) for seed in seeds]
    judged = zip(seeds, in_full(runs, spark), strict=True)
    found = {seed: false for seed, each in judged if (false := false_alarms(each, spec(seed)))}
    assert found == {}


@pytest.mark.nightly
def test_every_mutation_in_new_runs(tmp_path: Path, spark: SparkSession) -> None:
    first = random.SystemRandom().randrange(10**6)
    todo = [(mutation, first + i) for mutation in CATALOGUE.values() for i in range(NIGHTLY_SEEDS)]
    runs = [
        written(mutation, seed, tmp_path / f"{mutation.name}-{seed}") for mutation, seed in todo
    ]
    judged = zip(todo, verify(runs, spark=spark), strict=True)
    assert {
        (m.name, seed): complaints for (m, seed), each in judged if (complaints := wrong(m, each))
    } == {}

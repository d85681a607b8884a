"""The named scenarios on real clusters, judged: the guarantees of `linkflap run`, through the
public fixture.

The main job runs in CI with a seed that is kept, so that a failure there is a change of ours; the
nightly ones roll fresh seeds and print them.
"""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from linkflap.api.fixtures import FixtureRun

pytestmark = pytest.mark.spark

NO_RELAY = {
    "write-cycles",
    "exactly-once",
    "program-copies",
    "mirror-states",
    "share-groups",
    "topic-sync",
}
"""Checks of workloads that read inside their transactions, and of mirrors that describe themselves
or sync topics: these runs have none."""


def idle(judged: FixtureRun) -> set[str]:
    """The checks that had nothing to examine."""
    return {c["name"] for c in judged.document["checks"] if not sum(c["examined"].values())}


def failover(judged: FixtureRun) -> dict[str, Any]:
    found: dict[str, Any] = judged.document["failovers"][0]
    return found


@pytest.mark.linkflap(scenario="link-flap", seed=1279)
def test_the_main_job_is_valid(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    assert failover(linkflap_run)["kind"] == "forced"
    assert failover(linkflap_run)["rto_seconds"] > 0
    assert idle(linkflap_run) == NO_RELAY - {
        "topic-sync"
    }  # the shadow restores the settings of topics


@pytest.mark.linkflap(
    scenario="link-flap", mirror="mm2", topology="A{tls+scram}->B{tls+scram}", seed=1279
)
def test_the_main_job_with_mirrormaker_on_secured_clusters_is_valid(
    linkflap_run: FixtureRun,
) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    # MirrorMaker 2 moves offsets: of all checks, only these have nothing to say of it.
    assert (
        idle(linkflap_run)
        == {"byte-equality", "record-equality", "truncation-accounting"} | NO_RELAY
    )


@pytest.mark.nightly
@pytest.mark.linkflap(
    scenario="link-flap", mirror="mm2", seed=secrets.randbits(32), delivery="exactly-once"
)
def test_the_main_job_with_an_exactly_once_mirror(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(
    scenario="link-flap", mirror="mm2", topology="A<->B", seed=secrets.randbits(32)
)
def test_both_directions_of_an_active_active_pair_with_mirrormaker(
    linkflap_run: FixtureRun,
) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    for check in ("order-equality", "duplicate", "standby-isolation"):
        assert linkflap_run.checks[check].examined.keys() >= {"A/mirrored", "B/mirrored"}


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="planned-failover", seed=secrets.randbits(32))
def test_a_drained_failover_loses_nothing(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    assert failover(linkflap_run)["rpo_records"] == 0


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="half-open", seed=secrets.randbits(32))
def test_what_was_done_and_not_acknowledged(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="broker-loss", seed=secrets.randbits(32))
def test_brokers_come_and_go_under_a_mirror(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.linkflap(seed=seed)) for seed in range(5)]
)
@pytest.mark.linkflap(scenario="link-flap")
def test_the_main_job_with_many_seeds(linkflap_run: FixtureRun, seed: int) -> None:
    assert linkflap_run.document["seed"] == seed
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="planned-failover", topology="A@3.9.2->B", seed=39)
def test_an_older_source(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="failover-open-transactions", seed=secrets.randbits(32))
def test_what_was_open_at_a_failover_is_ended(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="producer-id-collision", seed=secrets.randbits(32))
def test_ids_that_were_drawn_on_both_sides_do_not_collide(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="client-kill", seed=secrets.randbits(32))
def test_clients_that_are_killed_are_named_and_leave_nothing_wrong(
    linkflap_run: FixtureRun,
) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    by_fault = {died["by"]: died for died in linkflap_run.document["clients_died"]}
    assert {
        "commit",
        "open",
        "relay",
        "send",
        "reader",
        "commit-there",
        "relay-there",
    } <= by_fault.keys()
    assert all(died["in_flight"] for name, died in by_fault.items() if name != "reader")


@pytest.mark.nightly
@pytest.mark.linkflap(
    scenario="failover-open-transactions",
    seed=secrets.randbits(32),
    open_transactions="truncate-once",
)
def test_a_failover_that_truncates_is_invalid(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "invalid"
    # Nothing ends the transaction that is open again; a watermark went back to a value that a
    # sample had before.
    kinds = {a["kind"] for a in linkflap_run.document["anomalies"]}
    assert kinds & {"hanging-transaction", "high-watermark-regression"}, kinds


@pytest.mark.nightly
@pytest.mark.linkflap(
    scenario="producer-id-collision", seed=secrets.randbits(32), producer_ids="keep"
)
def test_kept_ids_collide(linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "invalid"
    assert "producer-id-collision" in {a["kind"] for a in linkflap_run.document["anomalies"]}


@pytest.mark.linkflap(scenario="partitions-added", clients="java", seed=195)
def test_partitions_that_are_added_are_judged_from_their_first_record_on(
    linkflap_run: FixtureRun,
) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why
    assert {e["partition"] for e in linkflap_run.document["eras"] if e["cluster"] == "B"} == {
        0,
        1,
        2,
        3,
    }


TOPICS = ["partitions-added", "retention", "log-append-time", "large-messages", "compacted-topic"]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            f"{name} {mirror}",
            marks=pytest.mark.linkflap(scenario=name, mirror=mirror, seed=secrets.randbits(32)),
        )
        for name in TOPICS
        for mirror in ("shadow", "mm2")
    ],
)
def test_topics_of_every_kind_are_mirrored(linkflap_run: FixtureRun, name: str) -> None:
    assert linkflap_run.document["scenario"] == name.split()[0]
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.nightly
@pytest.mark.linkflap(scenario="compacted-topic", topology="A:3->B", seed=secrets.randbits(32))
def test_replicas_that_compact_each_by_itself_are_at_most_unknown(linkflap_run: FixtureRun) -> None:
    open_ones = [
        c for c in linkflap_run.document["checks"] if c["verdict"] not in ("valid", "not due")
    ]
    assert {c["name"] for c in open_ones} <= {"replica-agreement"}, linkflap_run.why
    assert all("batches differ between the brokers of A" in c["reason"] for c in open_ones)

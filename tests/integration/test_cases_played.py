"""Cases on real brokers: the finding on the release that has it, every other stored case, and a
last stable offset that is stuck."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from linkflap.chaos.cases import case_named, registry
from linkflap.chaos.cases.bench import Variant
from linkflap.chaos.cases.case import Outcome
from linkflap.chaos.cases.results import STORED, load, tallies
from linkflap.chaos.cases.runner import Benches, run_case
from linkflap.cli.commands import linkflap
from linkflap.harness.model.protocols import Broker, Deployment
from linkflap.harness.wire.librdkafka import answered_bounds, quiet
from tests.command_line import ran
from tests.shadows import TOPIC, make_topic
from tests.waiting import eventually


def test_a_commit_that_loses_its_marker_and_its_control(tmp_path: Path) -> None:
    with Benches(tmp_path / "runs") as benches:
        result = run_case(
            case_named("KAFKA-20734"), Variant(kafka="4.3.1"), count=1, benches=benches
        )
    assert result.outcome is Outcome.REPRODUCED, (result.words, result.failures)
    assert result.exit_code == 0
    assert result.controls == 1
    assert result.facts["markers_after_commit"] == []
    assert result.facts["read_committed_after_the_next_abort"] == 0
    assert result.control_facts["read_committed_after_the_next_abort"] == 10
    assert not (tmp_path / "runs").exists()


REPRODUCED = sorted(
    (name, version, client, transactions)
    for (name, version, client, transactions), tally in tallies(load(STORED)).items()
    if tally.runs and tally.shown == tally.runs and version == "4.3.1" and name in registry()
)


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "version", "client", "transactions"), REPRODUCED)
def test_a_case_that_always_reproduced_reproduces_again(
    tmp_path: Path, name: str, version: str, client: str, transactions: str
) -> None:
    variant = Variant(kafka=version, client=cast(Any, client), transactions=cast(Any, transactions))
    with Benches(tmp_path / "runs") as benches:
        result = run_case(case_named(name), variant, count=1, benches=benches)
    assert result.outcome is Outcome.REPRODUCED, (result.words, result.failures)


@pytest.mark.nightly
def test_a_matrix_that_is_killed_goes_on_with_what_is_not_stored(tmp_path: Path) -> None:
    words = f"case matrix KAFKA-15591 --kafka 3.9.2 --kafka 4.3.1 --count 1 --store {tmp_path}"
    command = (sys.executable, "-m", "linkflap", *words.split())
    with (
        (tmp_path / "first.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as first,
    ):
        try:
            eventually(
                "a first result", lambda: first.poll() is not None or load(tmp_path), within=300
            )
        finally:
            first.kill()  # SIGKILL: the process cannot clean up
    assert [row.version for row in load(tmp_path)] == ["3.9.2"], (
        tmp_path / "first.log"
    ).read_text()
    done = ran(command)
    assert done.returncode == 0, done.stderr
    assert "KAFKA-15591 on Kafka 3.9.2 wire: stored already" in done.stderr
    assert [row.version for row in load(tmp_path)] == ["3.9.2", "4.3.1"]


# A last stable offset that is stuck on a real broker: its producer state has forgotten a marker
# that is in its log.
#
# A broker that shuts down cleanly keeps what it knows of producers in a snapshot, and reads
# none of its log when it starts again (KIP-98, ProducerStateManager). A snapshot of an earlier
# moment in its place, as from a backup, says that a transaction is open that has ended since:
# the last stable offset stays at its first record, and readers of committed records get no
# further.


def judged(bootstrap: str, out: Path) -> tuple[int, dict[str, Any]]:
    """Exit code and document of the command."""
    words = f"verify --bootstrap A={bootstrap} --topics A[.]records --out {out} --json"
    result = CliRunner().invoke(linkflap, words, standalone_mode=False)
    assert result.exception is None, result.output
    return result.return_value, json.loads(result.stdout)


def bounds(bootstrap: str) -> tuple[int, int]:
    """Last stable offset and high watermark of the partition; -1 while its leader does not
    answer."""
    admin = AdminClient(quiet(bootstrap))
    stable, high = (
        answered_bounds(admin, [(TOPIC, 0)], kind, within=5.0) for kind in ("stable", "high")
    )
    return stable.get((TOPIC, 0), -1), high.get((TOPIC, 0), -1)


def restarted(broker: Broker, *, meanwhile: Callable[[], None] = lambda: None) -> None:
    broker.stop()
    meanwhile()
    broker.start()


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.linkflap(topology="A->B")
def test_a_broker_whose_producer_state_forgot_a_marker(
    linkflap_deployment: Deployment, tmp_path: Path, spark: SparkSession
) -> None:
    cluster = linkflap_deployment.clusters["A"]
    (broker,) = cluster.brokers.values()
    make_topic(linkflap_deployment, "A", partitions=1)
    folder = broker.log_dir / f"{TOPIC}-0"
    producer = Producer(quiet(cluster.bootstrap) | {"transactional.id": "writer", "linger.ms": 0})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(TOPIC, b"one", partition=0)
    producer.flush(60)
    restarted(broker)
    while_open = (folder / f"{1:020}.snapshot").read_bytes()
    producer.commit_transaction(60)
    eventually("the transaction to end", lambda: bounds(cluster.bootstrap) == (2, 2))

    code, document = judged(cluster.bootstrap, tmp_path / "sound")
    assert (code, document["verdict"]) == (0, "valid"), document["reason"]

    def put_back() -> None:
        assert (folder / f"{2:020}.snapshot").read_bytes() != while_open
        (folder / f"{2:020}.snapshot").write_bytes(while_open)

    restarted(broker, meanwhile=put_back)
    eventually(
        "the last stable offset to stand at the record", lambda: bounds(cluster.bootstrap) == (0, 2)
    )

    code, document = judged(cluster.bootstrap, tmp_path / "stuck")
    assert (code, document["verdict"]) == (1, "invalid"), document["reason"]
    found = [
        (a["check"], a["kind"], a["cluster"], a["offset"], a["evidence"])
        for a in document["anomalies"]
    ]
    said = {"last_stable": 0, "high_watermark": 2, "recomputed": 2}
    assert found == [("marker-pairing", "stable-offset-stuck", "A", 0, said)]

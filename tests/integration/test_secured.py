"""Secured clusters with real brokers: who can log in, what each may do, the effect of a bad
certificate, and no leaked secrets."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import cast

import psutil
import pytest
from _pytest.mark import ParameterSet
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

import linkflap
from linkflap.api.fixtures import FixtureRun
from linkflap.chaos.scenarios import SCENARIOS
from linkflap.harness.machine import ledger
from linkflap.harness.machine.engine_leftovers import OWNER, owner_label
from linkflap.harness.model.security import PRINCIPALS, Security
from linkflap.harness.model.wait import until
from linkflap.harness.runtimes import probe
from linkflap.harness.wire.access import NoAnswer, access, host_and_port
from linkflap.harness.wire.peer import BlockingConnection
from tests.cells import CLIENTS, SECURITIES, pairwise, topology
from tests.on_runtimes import EVERY, skip_without

WITHIN = 60


def delivered(world: linkflap.World, cluster: str, entry: Security) -> KafkaError | None:
    """Whether one record to A.orders, written as a principal, was delivered."""
    said: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": world.cluster(cluster).bootstrap,
            **entry.librdkafka(),
            "log_level": 0,
            "message.timeout.ms": 60000,
        }
    )
    producer.produce("A.orders", b"x", partition=0, on_delivery=lambda error, _: said.append(error))
    producer.flush(WITHIN)
    (error,) = said
    return error


def readable(world: linkflap.World, cluster: str, entry: Security) -> KafkaError | None:
    """Whether a principal can fetch a record of A.orders: the error, or None."""
    settings = {
        "bootstrap.servers": world.cluster(cluster).bootstrap,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "log_level": 0,
    }
    consumer = Consumer({**settings, **entry.librdkafka()})
    try:
        consumer.assign([TopicPartition("A.orders", 0, 0)])
        message = until(lambda: consumer.poll(0.5), within=WITHIN, what="a record, or a refusal")
        return message.error()
    except KafkaException as error:
        return cast(KafkaError, error.args[0])
    finally:
        consumer.close()


def refusal(world: linkflap.World, entry: Security) -> str:
    """Why no connection to A is established; empty if one is."""
    try:
        with BlockingConnection(
            host_and_port(world.cluster("A").bootstrap), within=WITHIN, access=access(entry)
        ) as path:
            path.send(probe.API_VERSIONS)
            path.receive()
    except NoAnswer as error:
        return str(error)
    return ""


def leaks(folder: Path, passwords: set[str]) -> list[str]:
    """Files that hold a password or a key."""
    found = []
    for path in folder.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        if b"PRIVATE KEY-----" in content or any(
            password.encode() in content for password in passwords
        ):
            found.append(str(path.relative_to(folder)))
    return found


def command_lines(passwords: set[str]) -> list[list[str]]:
    """The command lines of this machine's processes that contain a password."""
    found = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    return [
        words
        for words in found
        if any(password in word for word in words for password in passwords)
    ]


def inspected(passwords: set[str]) -> list[str]:
    """Containers of this process: the output of inspect, if it contains a password or a key."""
    from linkflap.harness.runtimes.docker import engine

    mine = engine.client().containers.list(
        all=True,
        ignore_removed=True,
        filters={"label": f"{OWNER}={owner_label(ledger.own().owner)}"},
    )
    assert mine, "the clusters run in containers"
    return [
        each.name
        for each in mine
        if any(word in json.dumps(each.attrs) for word in (*passwords, "PRIVATE KEY-----"))
    ]


@pytest.mark.parametrize(
    ("kind", "clusters"),
    [("process", "A{tls+scram}->B{mtls}"), ("docker", "A{tls+plain}->B{mtls}")],
)
def test_known_principals_get_in_and_do_only_what_they_may(
    tmp_path: Path, kind: str, clusters: str
) -> None:
    skip_without(kind)
    folder = tmp_path / "run"
    with linkflap.deploy(
        clusters, topics=["A.orders"], mirror="shadow", readers=False, folder=folder, runtime=kind
    ) as world:
        producer = linkflap.Producer(
            {"bootstrap.servers": world.link("*->A").bootstrap, "transactional.id": "orders"}
        )
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("A.orders", b"one", partition=0)
        producer.commit_transaction()
        world.mirror("A->B").wait()

        client = world.entry("A")
        assert "does not agree on TLS" not in refusal(world, client)
        assert "is not trusted" not in refusal(world, client)
        assert "ended" in refusal(world, Security()) or "announces" in refusal(world, Security())
        wrong = Security(
            protocol="SASL_SSL",
            authority=client.authority,
            mechanism=client.mechanism,
            username="client",
            password="wrong",
        )
        assert "refuses client" in refusal(world, wrong)
        for principal in ("reader", "sampler", "mirror"):
            error = delivered(world, "A", world.entry("A", principal))
            assert error is not None, principal
            assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, principal
        for cluster in ("A", "B"):  # there a password identifies the client, here a certificate
            assert readable(world, cluster, world.entry(cluster, "reader")) is None
            error = readable(world, cluster, world.entry(cluster, "sampler"))
            assert error is not None
            assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        certificate = world.entry("B", "reader")
        assert (certificate.protocol, certificate.password) == ("SSL", "")

        for fault, words in (
            ("certificate-expired", "certificate has expired"),
            ("certificate-untrusted", "unable to get local issuer certificate"),
        ):
            with world.fault(fault, "A->B") as window:
                assert words in str(window.bite.measured)
                producer.begin_transaction()
                producer.produce("A.orders", b"while the mirror is shut out", partition=0)
                producer.commit_transaction()
            world.mirror("A->B").wait()
        # The second time on connections that the first heal has ended.
        for stalled in ("responses", "requests"):
            with world.fault("link-half-open", "A->B", stalled=stalled) as window:
                assert cast(dict[str, object], window.bite.measured)["took_effect_before"]
                assert cast(dict[str, object], window.bite.measured)["requests_take_effect"] is (
                    stalled == "responses"
                )
        passwords = {world.entry("A", principal).password for principal in PRINCIPALS}
        private = Path(client.file).parent.parent
        assert private.is_dir()
        assert command_lines(passwords) == []
        assert kind != "docker" or inspected(passwords) == []
    assert len(passwords) == len(PRINCIPALS)
    assert leaks(folder, passwords) == []
    assert not private.exists()


@pytest.mark.nightly
def test_a_partition_of_a_secured_cluster_is_seen_from_inside_its_containers(
    tmp_path: Path,
) -> None:
    skip_without("docker")
    clusters = "A:3{tls+scram}->B"
    with (
        linkflap.deploy(
            clusters, topics=["A.orders"], readers=False, folder=tmp_path / "run", runtime="docker"
        ) as world,
        world.fault("partition", "A/1", direction="out") as window,
    ):
        assert window.bite.measured == {"before": True, "out": "silence", "in": "an answer"}


@pytest.fixture
def available(request: pytest.FixtureRequest) -> None:
    skip_without(request.param)


def judged(name: str, topology: str, **more: str) -> ParameterSet:
    """A scenario on these clusters, for the fixtures."""
    marks = [
        pytest.mark.linkflap(scenario=name, topology=topology, seed=secrets.randbits(32), **more),
        *NIGHTLY,
    ]
    return pytest.param(
        more["runtime"],
        marks=marks,
        id="-".join((name, topology, *(more[key] for key in more if key != "manifest"))),
    )


NIGHTLY = [pytest.mark.nightly, pytest.mark.spark]
COPIER = Path(__file__).resolve().parents[2] / "docs/examples/replicator/mirror.toml"
WORDS = (
    ("link-flap", "A{tls}->B{tls}", "mm2"),
    ("link-flap", "A{tls}->B{scram}", "shadow"),
    ("link-flap", "A{scram}->B{mtls}", "mm2"),
    ("planned-failover", "A{mtls}->B{plain}", "shadow"),
    ("half-open", "A{tls+scram}->B{mtls+plain}", "shadow"),
)


@pytest.mark.parametrize(
    "available",
    [
        *(
            judged(name, clusters, mirror=mirror, runtime=kind)
            for name, clusters, mirror in WORDS
            for kind in EVERY
        ),
        *(
            judged(
                "mirror-crash",
                "A{tls+scram}->B{mtls}",
                mirror="command",
                runtime=kind,
                manifest=str(COPIER),
            )
            for kind in EVERY
        ),
    ],
    indirect=True,
)
def test_scenarios_on_secured_clusters_are_valid(available: None, linkflap_run: FixtureRun) -> None:
    assert linkflap_run.verdict == "valid", linkflap_run.why


@pytest.mark.parametrize(
    "available",
    [
        *(
            judged(name, topology(name, "tls+scram"), clients=clients, runtime="process")
            for name in SCENARIOS
            for clients in CLIENTS
        ),
        *(
            judged(name, topology(name, security), clients=clients, runtime="docker")
            for name, clients, security in pairwise(tuple(SCENARIOS), CLIENTS, SECURITIES)
        ),
    ],
    indirect=True,
)
def test_every_scenario_is_valid_with_either_clients_on_secured_clusters(
    available: None, linkflap_run: FixtureRun
) -> None:
    """On processes, everything with TLS and a password (the rest is in `test_java_clients`); in
    containers a pairwise choice."""
    assert linkflap_run.verdict == "valid", linkflap_run.why

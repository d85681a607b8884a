"""A TLS and SASL listener for running brokers: certificates, users, and the ACLs of one user."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from linkflap.harness.model.errors import DeadlineExceeded
from linkflap.harness.model.protocols import Deployment
from linkflap.harness.runtimes.kraft.secrets import Authority
from linkflap.harness.wire.librdkafka import quiet
from tests.waiting import eventually

READER, PASSWORD = "reader", "a word, with = and spaces"
_MECHANISMS = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@dataclass(frozen=True)
class Certificates:
    """PEM files: an authority; and a key with a certificate for 127.0.0.1 in one file, as brokers
    need it."""

    authority: Path
    broker: Path


def certificates(folder: Path) -> Certificates:
    """Creates an authority and a broker certificate signed by it."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Authority(folder, "authority")
    return Certificates(
        authority=made.file, broker=made.issue("broker.pem", "broker", ["127.0.0.1"])
    )


def secure(deployment: Deployment, name: str, made: Certificates) -> str:
    """Restarts the brokers of a cluster with such a listener, and with ACLs enforced. Returns its
    bootstrap servers. A client of another listener is anonymous and may do everything."""
    addresses = []
    for broker in deployment.clusters[name].brokers.values():
        broker.stop()
        addresses.append(f"127.0.0.1:{deployment.free_port()}")
        properties = broker.log_dir.parent / "server.properties"
        settings = dict(
            line.split("=", 1) for line in properties.read_text().splitlines() if "=" in line
        )
        for key in ("listeners", "advertised.listeners"):
            settings[key] += f",SECURE://{addresses[-1]}"
        settings["listener.security.protocol.map"] += ",SECURE:SASL_SSL"
        settings |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        own = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(made.broker),
            "sasl.enabled.mechanisms": _MECHANISMS,
            "plain.sasl.jaas.config": f'{_PLAIN} required user_{READER}="{PASSWORD}";',
            "scram-sha-256.sasl.jaas.config": f"{_SCRAM} required;",
            "scram-sha-512.sasl.jaas.config": f"{_SCRAM} required;",
        }
        settings |= {f"listener.name.secure.{key}": value for key, value in own.items()}
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        broker.start()
    return ",".join(addresses)


def add_reader(bootstrap: str, topics: str) -> None:
    """Creates the user, who may describe and read topics with this prefix, and nothing else."""
    admin = AdminClient(quiet(bootstrap))
    users = [
        UserScramCredentialUpsertion(
            READER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode()
        )
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    ]
    for user in users:  # one at a time: a request contains one change of a user
        admin.alter_user_scram_credentials([user])[READER].result(60)
    rights = [
        AclBinding(
            ResourceType.TOPIC,
            topics,
            ResourcePatternType.PREFIXED,
            f"User:{READER}",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        for operation in (AclOperation.DESCRIBE, AclOperation.READ)
    ]
    for future in admin.create_acls(rights).values():
        future.result(60)


def properties(
    path: Path, made: Certificates, *, mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD
) -> Path:
    """A file of client properties for that listener."""
    path.write_text(
        "# as for kcat\n"
        "security.protocol = sasl_ssl\n"
        f"ssl.ca.location={made.authority}\n"
        f"sasl.mechanisms={mechanism}\nsasl.username={READER}\nsasl.password={password}\n"
    )
    return path


def state_of(bootstrap: str) -> dict[str, object]:
    """Everything that a client could have changed: topics with the size of their configuration,
    ACLs, users' groups, and the ends of every partition."""
    admin = AdminClient(quiet(bootstrap))
    found: dict[str, object] = {}

    def asked() -> bool:
        topics = admin.list_topics(timeout=60).topics
        groups = admin.list_consumer_groups(request_timeout=20).result(30)
        found["topics"] = {name: sorted(topic.partitions) for name, topic in topics.items()}
        found["groups"] = sorted(group.group_id for group in groups.valid)
        return not groups.errors

    try:
        eventually("the groups of a cluster", asked)
    except DeadlineExceeded as error:
        raise AssertionError(str(error)) from error
    return found

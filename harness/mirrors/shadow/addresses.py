"""The broker configs of a cluster, as its brokers report them, and the listeners among them: a
shadow joins the same listeners."""

from __future__ import annotations

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource

from linkflap.harness.model.errors import SetupError
from linkflap.harness.model.protocols import Cluster
from linkflap.harness.model.wait import patient
from linkflap.harness.wire.offsets import quiet


def broker_settings(cluster: Cluster) -> dict[int, dict[str, str]]:
    """Broker id -> its configs (name -> value), for each broker that is not stopped.

    Raises SetupError when a broker does not answer, or when all are stopped.
    """
    admin = AdminClient(quiet(cluster.bootstrap))
    found: dict[int, dict[str, str]] = {}
    for number, broker in cluster.brokers.items():
        if broker.state == "stopped":
            continue
        resource = ConfigResource(ConfigResource.Type.BROKER, str(number))
        try:
            described = admin.describe_configs([resource], request_timeout=patient(20))[
                resource
            ].result()
        except KafkaException as error:
            raise SetupError(
                f"broker {cluster.name}/{number} did not report its configs"
                f" ({error.args[0].str()}); see its log"
            ) from error
        found[number] = {
            name: entry.value for name, entry in described.items() if entry.value is not None
        }
    if not found:
        raise SetupError(
            f"no broker of cluster {cluster.name} is running; start one before its mirror"
        )
    return found


def listeners(advertised: str) -> dict[str, str]:
    """Listener name -> host:port, from `advertised.listeners` (`NAME://host:port,…`)."""
    return {
        name: address
        for name, _, address in (one.partition("://") for one in advertised.split(","))
    }

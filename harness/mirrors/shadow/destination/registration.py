"""The registration of a shadow with the destination's controller, and the errors for its
refusals."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from linkflap.harness.mirrors.shadow.journal import Journal
from linkflap.harness.mirrors.shadow.settings import Config
from linkflap.harness.model.errors import EnvironmentFailure, InputError
from linkflap.harness.wire import messages
from linkflap.harness.wire.messages import Error, Message

PROTOCOLS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
"""The ids of Kafka's SecurityProtocol."""


def refused(config: Config, answer: Message | None) -> InputError | EnvironmentFailure:
    """The error for a refused registration, and how to fix it. No answer: no controller was
    reached."""
    link, me = config.link, config.broker_id
    if answer is None:
        where = ", ".join(config.controllers)
        return EnvironmentFailure(
            f"no controller of the destination of {link} answers at {where}; start that cluster"
        )
    if answer.error_code == Error.duplicate_broker_registration:
        return InputError(
            f"broker id {me} is in use on the destination of {link}; stop the other shadow that"
            " uses it"
        )
    what = f"the destination's controller refused the shadow of {link} ({answer.error_code.name})"
    if answer.error_code == Error.inconsistent_cluster_id:
        return InputError(
            f"{what}; its cluster id is not {config.cluster_id}: use the id of that cluster"
        )
    if answer.error_code == Error.unsupported_version:
        return InputError(
            f"{what}; a shadow needs a destination of Kafka 3.9 or later with that release's "
            "metadata.version"
        )
    return EnvironmentFailure(f"{what}; see the controller's log")


def features_request() -> Message:
    """ApiVersions: the shadow registers with the features that the controller supports."""
    return messages.request("api_versions", 4).ApiVersionsRequest(
        client_software_name="linkflap-shadow", client_software_version="1"
    )


def registration(config: Config, journal: Journal, features: Sequence[Message]) -> Message:
    """BrokerRegistration (KIP-631) of a shadow."""
    m = messages.request("broker_registration", 4)
    inner, clients = config.entries.inner, config.entries.clients
    return m.BrokerRegistrationRequest(
        broker_id=config.broker_id,
        cluster_id=config.cluster_id,
        incarnation_id=uuid.UUID(journal.notes.incarnation_id),
        listeners=tuple(
            m.Listener(
                name=name,
                host=config.advertised_hosts.get(name, config.host),
                port=port,
                security_protocol=PROTOCOLS[
                    (inner if name == config.followers else clients).protocol
                ],
            )
            for name, port in config.listeners.items()
        ),
        features=tuple(
            m.Feature(
                name=f.name,
                min_supported_version=f.min_version,
                max_supported_version=f.max_version,
            )
            for f in features
        ),
        rack=None,
        log_dirs=(uuid.UUID(journal.notes.directory_id),),
        previous_broker_epoch=-1,
    )

"""Changes the key store of one listener while the broker runs (KIP-226): new connections get the
new certificate, open ones stay.

Until the change is reverted, the cluster's metadata has the name of the key store, so a broker that
starts meanwhile uses it too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from linkflap.harness.model.errors import FaultError
from linkflap.harness.wire.offsets import quiet

_WITHIN: Final = 30.0


def show(bootstrap: str, broker: str, node: int, listener: str, store: Path | None) -> None:
    """Makes a broker use this store on a listener; None: its own again. Raises FaultError."""
    name = f"listener.name.{listener.lower()}.ssl.keystore.location"
    operation = AlterConfigOpType.DELETE if store is None else AlterConfigOpType.SET
    entry = ConfigEntry(
        name, None if store is None else str(store), incremental_operation=operation
    )
    resource = ConfigResource(ConfigResource.Type.BROKER, str(node), incremental_configs=[entry])
    try:
        admin = AdminClient(quiet(bootstrap))
        admin.incremental_alter_configs([resource], request_timeout=_WITHIN)[resource].result(
            _WITHIN
        )
    except (KafkaException, TimeoutError) as error:
        why = error.args[0].str() if isinstance(error, KafkaException) else "no answer in time"
        raise FaultError(
            f"broker {broker} did not take another certificate ({why}); see its log"
        ) from error

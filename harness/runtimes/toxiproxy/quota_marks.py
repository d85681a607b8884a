"""Quota marks: a request sets a client quota and another reads it, to see whether a request took
effect behind a path."""

from __future__ import annotations

# Before kio, which would import hypothesis.
import linkflap.harness.wire  # noqa: F401

# isort: split
from kio.schema.alter_client_quotas.v1 import request as alter_quotas
from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.describe_client_quotas.v1 import request as describe_quotas
from kio.schema.describe_client_quotas.v1.request import DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse
from kio.static.primitive import f64, i8

from linkflap.harness.runtimes.frames import decode, encode
from linkflap.harness.runtimes.probe import PLAIN, Address, Path
from linkflap.harness.wire.access import Access


def set_mark(name: str) -> bytes:
    """The request that makes a client quota called `name`, to be sent on a `Path`; see `has_mark`
    for its effect."""
    return encode(_mark(name, remove=False), 1)


def remove_mark(address: Address, name: str, *, within: float, access: Access = PLAIN) -> None:
    """Removes a client quota. Raises NoAnswer."""
    with Path(address, within=within, access=access) as path:
        path.ask(_mark(name, remove=True))


def _mark(name: str, *, remove: bool) -> AlterClientQuotasRequest:
    entity = alter_quotas.EntityData(entity_type="client-id", entity_name=name)
    operation = alter_quotas.OpData(key="request_percentage", value=f64(100.0), remove=remove)
    return AlterClientQuotasRequest(
        entries=(alter_quotas.EntryData(entity=(entity,), ops=(operation,)),), validate_only=False
    )


def has_mark(address: Address, name: str, *, within: float, access: Access = PLAIN) -> bool:
    """Whether a client quota called `name` is known at `address`. Raises NoAnswer."""
    component = describe_quotas.ComponentData(entity_type="client-id", match_type=i8(0), match=name)
    with Path(address, within=within, access=access) as path:
        frame = path.ask(DescribeClientQuotasRequest(components=(component,), strict=True))
    return bool(decode(DescribeClientQuotasResponse, frame).entries)

"""Converts objects of the build's Java Admin: its arguments, the rows of describe, and its
errors."""

from __future__ import annotations

from linkflap.harness.jvm.bridge import Handle
from linkflap.harness.mirrors.cluster_mirroring.answers import DescribeRow, VerbRefused


def settings_of(jvm: Handle, name: str) -> Handle:
    """A mirror as a ConfigResource."""
    kinds = jvm.org.apache.kafka.common.config
    return kinds.ConfigResource(
        getattr(kinds, "ConfigResource$Type").valueOf("CLUSTER_MIRROR"), name
    )


def row_of(row: Handle) -> DescribeRow:
    return DescribeRow(
        topic=str(row.topicPartition().topic()),
        partition=int(row.topicPartition().partition()),
        state=str(row.state()),
        source_offset=int(row.sourceOffset()),
        destination_offset=int(row.destinationOffset()),
        lag=int(row.lag()),
        retries=int(row.retryAttempt()),
        error=str(row.errorMessage() or ""),
    )


def refused_by(verb: str, thrown: Handle, jvm: Handle) -> VerbRefused:
    """The Kafka error inside a future's exception, looked up in the build's own table
    (`Errors`)."""
    while (
        thrown.getClass().getSimpleName() == "ExecutionException" and thrown.getCause() is not None
    ):
        thrown = thrown.getCause()
    error = jvm.org.apache.kafka.common.protocol.Errors.forException(thrown)
    message = str(thrown.getMessage() or thrown.getClass().getSimpleName())
    return VerbRefused(verb, str(error.name()), int(error.code()), message)

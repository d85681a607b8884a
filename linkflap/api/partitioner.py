"""Computes the partition that a partitioner of librdkafka chooses for a key. linkflap implements
some of the partitioners."""

from __future__ import annotations

import random
import zlib
from typing import Final

from linkflap.harness.model.errors import InputError

PARTITIONERS: Final = ("consistent_random", "consistent", "random")
"""The partitioners of librdkafka that are implemented here; the first is librdkafka's default."""


def known(partitioner: str) -> str:
    """Returns the name. Raises InputError for an unknown one."""
    if partitioner not in PARTITIONERS:
        raise InputError(
            f"partitioner is {partitioner!r}, which linkflap.Producer does not know; give each "
            f"record its partition, or use one of {', '.join(PARTITIONERS)}"
        )
    return partitioner


def partition_of(key: str | bytes | None, count: int, partitioner: str) -> int:
    """The partition of a key in a topic with `count` partitions."""
    content = key.encode() if isinstance(key, str) else key
    if partitioner == "random" or (not content and partitioner != "consistent"):
        return random.randrange(count)
    return zlib.crc32(content or b"") % count

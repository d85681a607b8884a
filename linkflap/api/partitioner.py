"""Which partition librdkafka's partitioners choose for a key; linkflap implements some of them."""

from __future__ import annotations

import random
import zlib
from typing import Final

from linkflap.harness.model.errors import InputError

PARTITIONERS: Final = ("consistent_random", "consistent", "random")
"""Those of librdkafka whose choice is computed here; the first is its default."""


def known(partitioner: str) -> str:
    """Returns the name. Raises InputError for an unknown one."""
    if partitioner not in PARTITIONERS:
        raise InputError(
            f"partitioner is {partitioner!r}, which linkflap.Producer does not know; give each "
            f"record its partition, or use one of {', '.join(PARTITIONERS)}"
        )
    return partitioner


def partition_of(key: str | bytes | None, count: int, partitioner: str) -> int:
    """The partition of a key, of so many."""
    content = key.encode() if isinstance(key, str) else key
    if partitioner == "random" or (not content and partitioner != "consistent"):
        return random.randrange(count)
    return zlib.crc32(content or b"") % count

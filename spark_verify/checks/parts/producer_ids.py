"""The mapped producer ids of a mirror, by its guarantee; the mappings that were proposed.

    negate      -(pid + 2) (KIP-1279, February 2026)
    complement  Long.MAX - pid - 1 (its discussion thread)
    region      the sign bit, 32 bits that name the source's cluster, and the lower 31 bits of pid
                (the same)

No id (-1) stays none. A mapping is a function, and no two ids get the same one. It changes eight
bytes of a batch, and the CRC that follows from them. A CRC is linear: the CRC of the source's
batch, both ids and the length give the CRC that the destination's batch must have. So equal are all
other bytes under the CRC: attributes, timestamps, epoch, sequence, count, and the records.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from linkflap.harness.log import layout
from linkflap.harness.model.guarantee import ProducerIds
from linkflap.spark_verify.facts.view import Bools, Ints

_LOW: Final = 0x7FFFFFFF
_CASTAGNOLI: Final = 0x82F63B78
_ID_BYTES: Final = 8


def ids_as_declared(how: ProducerIds, source: Ints, destination: Ints) -> Bools:
    """Per batch, whether its producer id on the destination is what the mapping makes of that on
    the source.

    A region is that of most batches, and the id of only one producer.
    """
    none = source == -1
    if how == "negate":
        right = destination == -(source + 2)
    elif how == "complement":
        right = destination == np.iinfo(np.int64).max - source - 1
    elif how == "region":
        right = (destination < -1) & ((destination & _LOW) == (source & _LOW))
        right &= (destination >> 31) == region_of(destination[right & ~none])
        right[~none] &= ~_shared(source[~none], destination[~none])
    else:
        right = destination == source
    return np.asarray(np.where(none, destination == -1, right))


def region_of(mapped: Ints) -> int:
    """The region that most of these ids have, of several the one that comes first; 0 of none."""
    regions, first, counts = np.unique(mapped >> 31, return_index=True, return_counts=True)
    return int(regions[np.lexsort((first, -counts))[0]]) if len(regions) else 0


def _shared(source: Ints, destination: Ints) -> Bools:
    """Per batch, whether an id that came earlier in the log has its id on the destination."""
    ids, first, which = np.unique(destination, return_index=True, return_inverse=True)
    return np.asarray(source != source[first][which]) if len(ids) else np.zeros(0, np.bool_)


def crc_as_mapped(crc: Ints, length: Ints, source: Ints, destination: Ints) -> Ints:
    """Per batch, the CRC that follows from the source's CRC, where only the producer id differs."""
    changed = np.ascontiguousarray((source ^ destination).astype(">i8")).view(np.uint8)
    state = np.zeros(len(crc), np.uint32)
    for byte in changed.reshape(-1, _ID_BYTES).T:
        state = (state >> np.uint32(8)) ^ _zero_bytes(0)[0][(state ^ byte) & np.uint32(0xFF)]
    behind = length - (layout.PRODUCER_ID_AT + _ID_BYTES)
    for power in range(int(behind.max(initial=0)).bit_length()):
        rows = np.flatnonzero((behind >> power) & 1)
        state[rows] = _shifted(_zero_bytes(power), state[rows])
    return np.asarray(crc ^ state.astype(np.int64))


@cache
def _zero_bytes(power: int) -> NDArray[np.uint32]:
    """What 2^power bytes of zero make of a CRC's state, as four tables: one for each byte of it."""
    if power:
        half = _zero_bytes(power - 1)
        return np.stack([_shifted(half, table) for table in half])
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_CASTAGNOLI), table >> 1)
    rest = np.arange(256, dtype=np.uint32)
    return np.stack([table, *(rest << np.uint32(8 * (byte - 1)) for byte in (1, 2, 3))])


def _shifted(tables: NDArray[np.uint32], state: NDArray[np.uint32]) -> NDArray[np.uint32]:
    parts = [table[(state >> np.uint32(8 * n)) & np.uint32(0xFF)] for n, table in enumerate(tables)]
    return np.asarray(np.bitwise_xor.reduce(np.stack(parts)), np.uint32)

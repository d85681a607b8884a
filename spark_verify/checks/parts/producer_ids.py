"""The mapped producer ids of a mirror, by its guarantee; the mappings that were proposed.

    negate      -(pid + 2) (KIP-1279, February 2026)
    complement  Long.MAX - pid - 1 (its discussion thread)
    region      the sign bit, 32 bits that name the source's cluster, and the lower 31 bits of pid
                (the same)

No id (-1) stays none.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from linkflap.harness.model.guarantee import ProducerIds
from linkflap.spark_verify.facts.view import Bools, Ints

_LOW: Final = 0x7FFFFFFF


def ids_as_declared(how: ProducerIds, source: Ints, destination: Ints) -> Bools:
    """Per batch, whether its producer id on the destination is what the mapping makes of that on
    the source."""
    none = source == -1
    if how == "negate":
        right = destination == -(source + 2)
    elif how == "complement":
        right = destination == np.iinfo(np.int64).max - source - 1
    elif how == "region":
        regions = destination[~none] >> 31
        one = len(regions) == 0 or bool((regions == regions[0]).all())
        right = (destination < -1) & ((destination & _LOW) == (source & _LOW)) & one
    else:
        right = destination == source
    return np.asarray(np.where(none, destination == -1, right))

"""Counting what was examined, by cluster and origin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from spark_verify.checks.base import Examined
from spark_verify.eras import eras
from spark_verify.view import Ints, PartitionView


def examined(view: PartitionView, cluster: str, offsets: Ints) -> Sequence[Examined]:
    """One count per era of the cluster that holds any of these offsets; nothing for eras that hold none."""
    counts = ((era.origin, int(np.count_nonzero((offsets >= era.start) & (offsets < era.end)))) for era in eras(view, cluster))
    return [Examined(cluster=cluster, origin=origin, count=count) for origin, count in counts if count]

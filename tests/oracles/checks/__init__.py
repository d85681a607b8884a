"""A slow and obvious reference of every check: `tests.oracles.checks.<name>`, one module each.

    reference(views)    every thing that is wrong, one place for each: (kind, cluster, topic,
                        partition, offset)
    EACH                kinds of which the check reports neighbours as one, and how many `records`
                        they are
SOME                kinds of which one anomaly stands for any number of places
DESPITE_TORN        kinds that what is there of a torn log proves, whatever is missing
KNOWS_TORN          the reference looks across partitions, and says itself what a torn log proves
FAITHFUL_TOO        it may find something in a faithful history: what a failover cost, a transaction
                    that nobody ended in time
BESIDE              why this check too may find a mutation of something else: it follows, if the
                    story has what else it takes

Made of lists, dictionaries and loops, and of nothing of `spark_verify.checks` or
`spark_verify.facts.eras`. `views` are all partitions of one run. Of a partition with a torn log
only what the rest proves counts (`tests.oracles.agreement`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping


def beside() -> Mapping[str, str]:
    """By check, why it may find something beside what a mutation must show."""
    modules = [
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    ]
    return {
        module.__name__.rpartition(".")[2].replace("_", "-"): module.BESIDE
        for module in modules
        if hasattr(module, "BESIDE")
    }

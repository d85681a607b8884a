"""A slow and obvious reference of every check: `tests.oracles.checks.<name>`, one module each.

    reference(views)    all anomalies, one for each record or offset: (kind, cluster, topic,
                        partition, offset)
    EACH                kinds of which the check joins neighbours into one anomaly, with their
                        number (`records`)

These names are optional:

    SOME                kinds of which one anomaly represents any number of offsets
    DESPITE_TORN        kinds that the remaining part of a torn log proves, whatever is missing
    KNOWS_TORN          the reference looks across partitions, and itself decides what a torn log
                        proves
    FAITHFUL_TOO        the check may find something in a faithful history: the cost of a failover,
                        a transaction that nobody ended in time
    BESIDE              why this check may also find a mutation that is aimed at another check: the
                        finding follows from it in some histories

A reference uses lists, dictionaries and loops, and no code of `spark_verify.checks` or
`spark_verify.facts.eras`. `views` are all partitions of one run. For a partition with a torn log
only proven findings count (`tests.oracles.agreement`).
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping


def beside() -> Mapping[str, str]:
    """Check -> why it may find something besides the finding that a mutation must show."""
    modules = [
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    ]
    return {
        module.__name__.rpartition(".")[2].replace("_", "-"): module.BESIDE
        for module in modules
        if hasattr(module, "BESIDE")
    }

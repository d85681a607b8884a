"""pandas is not imported in processes that are ours alone: it takes a quarter of all that starting one costs.

pyarrow imports it as soon as it is given a list, to ask whether that is a part of it, and pyspark looks at its version before it
makes a function of Arrow batches. Neither makes or takes any pandas object here. In a process of somebody else's (pytest) nothing
is done: what they do with pandas must go on as it was.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)
        return None


def settle() -> None:
    """Makes pyarrow and pyspark decide that pandas is absent. A later import of pandas still works."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])  # pyarrow asks once
    finally:
        sys.meta_path.remove(finder)
    from pyspark.sql.pandas import functions

    vars(functions)["require_minimum_pandas_version"] = lambda: None

"""Prevents the import of pandas in linkflap's own processes: it takes a quarter of the cost of
starting one.

pyarrow imports it as soon as it gets a list, to test whether the list is a pandas object, and
pyspark reads its version before it makes a function of Arrow batches. Neither uses a pandas object
here. In another program's process (pytest) nothing is done: that program must be able to use pandas
as before.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
from pyspark.sql import types


class _NoPandas(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)
        return None


def settle() -> None:
    """Makes pyarrow and pyspark decide that pandas is absent. A later import of pandas still
    works."""
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])  # pyarrow tests for pandas only once
    finally:
        sys.meta_path.remove(finder)
    from pyspark.sql.pandas import functions

    vars(functions)["require_minimum_pandas_version"] = lambda: None


def ask_numpy() -> None:
    """pyspark sees by itself whether an argument is numpy's. Its own way imports pyspark.testing,
    and that imports whatever is installed of pandas, matplotlib, scikit-learn, torch and others.
    """
    types.NumpyScalarConverter.can_convert = _is_scalar  # type: ignore[method-assign,assignment] # the same answers
    types.NumpyArrayConverter.can_convert = _is_array  # type: ignore[method-assign,assignment]


def _is_scalar(converter: object, value: object) -> bool:
    return isinstance(value, np.generic)


def _is_array(converter: object, value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim == 1

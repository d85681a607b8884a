"""Python workers are forked from a process that has imported everything and has one thread; none of
linkflap's processes imports pandas."""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORTED = """
import os, sys
from linkflap.spark_verify.spark import daemon
alone = daemon.imported()
assert "pandas" not in sys.modules and "linkflap.spark_verify.checks" in sys.modules
if os.fork() == 0:
    import pyarrow as pa
    os._exit(pa.array([1, 2]).to_pylist() != [1, 2] or "pandas" in sys.modules)
print(alone, os.wait()[1])
"""
# With the thread that it starts, a fork could copy a lock that is never released: Spark's own
# daemon has to take over.
THREADED = """
import os, threading
from linkflap.spark_verify.spark import daemon
threading.Thread(target=threading.Event().wait, daemon=True).start()
taken = []
wanted = ["-P", "-m", "pyspark.daemon", "pyspark.worker"]
os.execv = lambda program, words: taken.append(words) or os._exit(words[1:] != wanted)
import sys
sys.argv = ["daemon", "pyspark.worker"]
daemon.main()
"""
LATER = """
from linkflap.spark_verify.spark import pandas_free
pandas_free.settle()
import pandas as pd, pyarrow as pa
print(pa.array([1]).to_pandas().sum(), pa.Table.from_pandas(pd.DataFrame({"a": [2]}))["a"][0])
"""
BEFORE = """
import pandas as pd, pyarrow as pa
from linkflap.spark_verify.spark import pandas_free
pandas_free.settle()
print(pa.array(pd.Series([3]))[0])
"""

ASKED = """
import sys
import numpy as np
from pyspark.sql.types import NumpyArrayConverter as Array, NumpyScalarConverter as Scalar
from linkflap.spark_verify.spark import pandas_free, session
theirs = [Scalar.can_convert, Array.can_convert]
values = ["a", [1], 1, np.int64(1), np.array([1]), np.zeros((2, 2))]
pandas_free.settle()
pandas_free.ask_numpy()
ours = [[converter().can_convert(value) for value in values] for converter in (Scalar, Array)]
print(sorted({"numba", "pandas", "matplotlib", "pyspark.testing"} & set(sys.modules)))
print(ours == [[asked(None, value) for value in values] for asked in theirs])
"""


def output_of(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark's own daemon serves")
def test_all_is_imported_in_one_thread_and_a_fork_can_use_it() -> None:
    assert output_of(IMPORTED) == "True 0"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark's own daemon serves")
def test_where_a_library_starts_a_thread_sparks_own_daemon_takes_over() -> None:
    output_of(THREADED)


def test_pandas_can_be_imported_later() -> None:
    assert output_of(LATER) == "1 2"


def test_pandas_that_is_there_already_is_left_as_it_is() -> None:
    assert output_of(BEFORE) == "3"


def test_the_process_that_plans_a_verdict_imports_neither_numba_nor_pandas() -> None:
    assert output_of(ASKED) == "[]\nTrue"

"""The process that forks Spark's Python workers (`spark.python.daemon.module`). It imports
everything that they need once.

Spark's own daemon imports nothing, because a process with threads must not be forked, and libraries
start threads when they are imported. This daemon prevents these threads. If a library starts some
all the same, and on systems where forking is not safe anyway, Spark's daemon takes this process
over, and each worker imports for itself.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Final

_OWN: Final = "pyspark.daemon"
_ALONE: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Settings that keep numpy and pyarrow from starting threads."""


def imported() -> bool:
    """Imports what workers need; False when there is now more than the thread that did."""
    os.environ.update(_ALONE)
    from linkflap.spark_verify.spark import pandas_free

    pandas_free.settle()
    import pyspark.worker  # noqa: F401

    import linkflap.harness.log.record_loops
    import linkflap.spark_verify.spark.job  # noqa: F401
    from linkflap.harness.log import segments

    # numba sets up its types at the first call, which costs a third of a worker's time in a small
    # run.
    segments.load_compiled()
    return len(list(Path("/proc/self/task").iterdir())) == 1


def main() -> None:
    """Serves Spark until it closes our standard input."""
    if sys.platform != "linux" or not imported():
        os.execv(sys.executable, [sys.executable, "-P", "-m", _OWN, *sys.argv[1:]])
    from pyspark.daemon import manager

    # Objects that exist now are never freed: without a scan by each worker's garbage collector,
    # their pages stay shared.
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()

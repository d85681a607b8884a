"""The process that makes a class archive: `python -m linkflap.spark_verify.spark.training JAVA
MAJOR OPTION…` (see `class_archive`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from linkflap.harness.machine.java import Java
from linkflap.spark_verify.spark import session

if __name__ == "__main__":
    session.train(Java(path=Path(sys.argv[1]), major=int(sys.argv[2])), sys.argv[3:])

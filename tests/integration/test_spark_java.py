"""Spark on the Java from PyPI, newer and smaller than a distribution's: on a machine with Python
only."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from linkflap.harness.machine.wheels import JAVA

ASK = """
from linkflap.spark_verify.spark import session
spark = session.warm().result(500)
print("java", spark.sparkContext._jvm.System.getProperty("java.version"))
session.close()
"""


@pytest.mark.nightly
@pytest.mark.spark
def test_spark_answers_on_the_packaged_java(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    # An empty PATH has no java; the interpreter is named in full.
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=environment | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["java", JAVA.partition("==")[2].rpartition(".")[0]]

"""A class archive for Spark's JVM: it halves the cost of a JVM's start and of its first query.

It is made once per Java and pyspark, when Spark is first used, by a JVM that runs the verifier's
query and exits normally: the same kind of archive that brokers have (`use` and `make`). It is
optional: if it cannot be made or used, Spark starts without it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from functools import cache as remembered
from functools import partial
from pathlib import Path
from typing import Final

import pyspark

from linkflap.harness.machine import cache, children
from linkflap.harness.machine.java import Java
from linkflap.harness.machine.java import with_archive as use
from linkflap.harness.machine.java import writing_archive as make
from linkflap.harness.model.errors import EnvironmentFailure, SetupError

LOG: Final = logging.getLogger("linkflap")
_TRAINING: Final = "linkflap.spark_verify.spark.training"
_FILE: Final = "spark"
_REFUSED: Final = "refused"
_WITHIN: Final = 300.0
"""Seconds for a JVM that starts, runs a query and writes some hundred MiB, on a machine with much
else to do."""


@remembered
def class_path() -> str:
    """Spark's jars in one order: an archive belongs to a class path, and a wildcard is whatever
    order a folder has."""
    return os.pathsep.join(
        str(jar) for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    )


def options(java: Java) -> list[str]:
    """Options with which a JVM uses the archive, made now if there is none yet; none where it
    cannot be made."""
    try:
        folder = cache.once(
            _name(java),
            partial(_make, java),
            doing="making a class archive for Spark, so that it starts faster (20 s on an idle "
            "machine, once per Java and pyspark)",
        )
    except EnvironmentFailure as error:
        LOG.info("Spark starts without a class archive, some seconds slower: %s", error)
        return []
    archive = folder / _FILE
    return use(java, archive) if archive.is_file() else []


def _name(java: Java) -> str:
    """The archive's folder in the cache. Its name differs for two Javas, two pysparks, and a
    reinstalled pyspark."""
    jars = [(jar, os.stat(jar).st_mtime_ns) for jar in class_path().split(os.pathsep)]
    state = f"{java.path}{java.path.stat().st_mtime_ns}{jars}"
    digest = hashlib.sha256(state.encode()).hexdigest()
    return f"archives/spark{pyspark.__version__}-java{java.major}-{digest[:12]}"


def _make(java: Java, folder: Path) -> None:
    """Has a process of its own run the query, in a JVM that writes the archive. A Java that writes
    none is not asked again."""
    archive, printed = folder / _FILE, folder / _REFUSED
    command = [
        sys.executable,
        "-m",
        _TRAINING,
        str(java.path),
        str(java.major),
        *make(java, archive),
    ]
    status = children.run(
        command, name="class archive of Spark", folder=folder, output=printed, within=_WITHIN
    )
    if status:
        lines = printed.read_text(errors="replace").splitlines()
        raise SetupError(
            f"{java.path} did not make one ({lines[-1] if lines else f'exit status {status}'})"
        )
    if archive.is_file():
        printed.unlink()

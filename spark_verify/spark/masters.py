"""Where Spark runs: in this process's own JVM (`local[2]`), or on a running cluster (`spark://…`).

On a cluster the driver is here, and executors are elsewhere, with another directory, environment
and Python. They need linkflap in that Python (`spark.pyspark.python`, or PYSPARK_PYTHON), and the
run directories at the same paths. Any other configuration is a Spark setting, and is passed to
Spark unchanged.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from linkflap.harness.model.errors import InputError, SetupError

LOCAL: Final = "local[2]"
LOOPBACK: Final = "127.0.0.1"
PYTHON: Final = "spark.pyspark.python"
DRIVER_MEMORY: Final = "spark.driver.memory"
HEAP: Final = "2g"
_ANSWERS_WITHIN: Final = 10.0
_STANDALONE: Final = "spark://"
_MEMORY: Final = r"[1-9][0-9]*[kKmMgGtT]"
"""As both Spark and a JVM's -Xmx take it."""
_FORM: Final = re.compile(r"local(\[[\d*]+(,\d+)?\])?|spark://.+:\d+|yarn|k8s://.+")
_SETTINGS: Final[Mapping[str, str]] = {
    "spark.app.name": "linkflap",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    # Stages are few and small, and each would be planned again.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.python.filterPushdown.enabled": "false",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.python.daemon.module": "linkflap.spark_verify.spark.daemon",
    # Rows that cross Spark are few: compiling code for each plan costs more than it saves.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A partition of any size goes through the JVM some MiB at a time: what is sorted is spilled,
    # what is handed over is split.
    "spark.shuffle.spill.maxSizeInBytesForSpillThreshold": "64m",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
}


def is_local(master: str) -> bool:
    """Whether everything runs in one JVM here."""
    return master.startswith("local")


def settings(master: str, given: Mapping[str, str]) -> dict[str, str]:
    """Spark's settings for a master, those that were given last."""
    here = address(master)
    # Only with these masters does no other machine connect to the driver.
    bind = {"spark.driver.bindAddress": here} if is_local(master) or here == LOOPBACK else {}
    return {**_SETTINGS, "spark.driver.host": here, **bind, **given}


def python(master: str, given: Mapping[str, str]) -> str:
    """The Python that executors start."""
    chosen = given.get(PYTHON)
    if chosen or is_local(master):
        return chosen or sys.executable
    return os.environ.get("PYSPARK_PYTHON") or sys.executable


def address(master: str) -> str:
    """This machine's address as the master's machine reaches it; loopback where all of Spark is
    here."""
    for host, port in _addresses(master):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            try:
                asked.connect(
                    (host, port)
                )  # sends nothing: connect on a UDP socket only looks up the route
            except OSError:
                continue
            return str(asked.getsockname()[0])
    return LOOPBACK


def check(master: str) -> None:
    """Raises SetupError for what is no master, or a standalone one that does not answer: Spark asks
    three times, for a minute."""
    if not _FORM.fullmatch(master):
        raise SetupError(
            f"{master!r} is no Spark master; give spark://HOST:7077, local[N], yarn or k8s://…, or "
            "omit --master"
        )
    addresses = list(_addresses(master))
    refused = []
    for host, port in addresses:
        try:
            with socket.create_connection((host, port), timeout=_ANSWERS_WITHIN):
                return
        except OSError as error:
            refused.append(f"{host}:{port}: {error.strerror or error}")
    if addresses:
        reasons = "; ".join(refused)
        raise SetupError(
            f"no Spark master answers at {master} ({reasons}); start one there, or omit --master to"
            f" use {LOCAL}"
        )


def _addresses(master: str) -> Iterator[tuple[str, int]]:
    if not master.startswith(_STANDALONE):
        return
    for each in master.removeprefix(_STANDALONE).split(","):
        host, _, port = each.rpartition(":")
        if host and port.isdecimal():
            yield host, int(port)


def given_settings(texts: Iterable[str]) -> dict[str, str]:
    """`spark.name=value` texts as settings. Raises InputError for what is not one."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"spark\.[\w.]+", name):
            raise InputError(
                f"--spark {text!r} is no setting of Spark, for example --spark "
                "spark.executor.memory=4g"
            )
        if name.endswith(".memory") and not re.fullmatch(_MEMORY, value):
            raise InputError(
                f"--spark {text!r}: {value!r} is no amount of memory; write for example {name}=4g"
            )
        found[name] = value
    return found

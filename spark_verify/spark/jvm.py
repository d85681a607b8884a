"""Spark's JVM: how it is launched, and its message when it dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

import pyspark

from linkflap.harness.machine import cleanup, ledger, process_identity
from linkflap.spark_verify.spark import class_archive

_OUT_OF_MEMORY: Final = 3
"""Exit status of -XX:+ExitOnOutOfMemoryError."""


# What Spark's own launcher opens and allows for Java 17 and later
# (org.apache.spark.launcher.JavaModuleOptions).
_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
)


# Without the last two, Netty finds no memory it may touch on Java 24 and later, and Arrow with it:
# a query then never answers.
_ALLOWED: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-Djdk.reflect.useDirectMethodHandle=false",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "-XX:+ExitOnOutOfMemoryError",
)


_QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-Xshare:auto")


def launch(
    java: Path, options: Sequence[str], gateway: Path, out: IO[bytes]
) -> subprocess.Popen[bytes]:
    spark = Path(pyspark.__file__).parent
    command = [str(java), *_QUICK, *options]
    command += [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
    command += [*_ALLOWED, f"-Djava.io.tmpdir={gateway.parent}"]
    command += [
        "-cp",
        class_archive.class_path(),
        "org.apache.spark.deploy.SparkSubmit",
        "pyspark-shell",
    ]
    # Python workers get the environment of the JVM: they must find every module that a check here
    # may come from.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    environment = (
        os.environ
        | {"PYTHONPATH": path}
        | {
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(gateway),
            "SPARK_CONNECT_MODE": "0",
            "SPARK_HOME": str(spark),
            "PYTHONSAFEPATH": "1",
        }
        | ({} if "SPARK_LOCAL_DIRS" in os.environ else {"SPARK_LOCAL_DIRS": str(gateway.parent)})
    )
    jvm = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    )
    # It ends when its input does, unless Spark's shutdown hangs half-way through its start (seen):
    # then the watchdog ends it.
    cleanup.start_watchdog()
    identity = process_identity.identify(jvm.pid)
    if identity is not None:
        ledger.add_child(identity)
    return jvm


def death(status: int) -> str:
    if status < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"was killed by {names.get(-status, f'signal {-status}')}"
    return "ran out of memory" if status == _OUT_OF_MEMORY else f"died with exit status {status}"


def cause(printed: str) -> str:
    """The line of a Java or Python trace that says what happened."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(\S+\s)?[\w.]*(Error|Exception)\b.*", line)]
    return (telling or lines or ["it printed nothing"])[-1]

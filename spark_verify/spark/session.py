"""One Spark session per process: started early, beside other work, and gone with the process.

linkflap starts the JVM itself, without pyspark's launcher. So the JVM does not outlive the harness
(it ends when its standard input does, also when the harness is killed), does not get the terminal's
Ctrl-C, and needs one JVM start less. The JVM runs at normal priority, because a niced verdict would
wait for every other process of a busy machine. Single-step compilation and serial GC cost least CPU
for a job of seconds. The JVM exits when it is out of memory: an OutOfMemoryError in one of Spark's
own threads would leave a job without an answer forever. `spark_verify.spark.masters` decides where
the work is done.

A class archive halves the cost of the JVM's start and of its first query. There is one per Java and
pyspark. While there is none, the first JVM that has judged writes it when it ends (`keep_classes`):
the verdict is there by then. It is optional: if it cannot be written or used, Spark starts without
it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import logging
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cache as remembered
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

import psutil
import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.core.context import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from linkflap.harness.machine import cache, cleanup, ledger, process_identity
from linkflap.harness.machine.java import Java, java_for, with_archive, writing_archive
from linkflap.harness.model import interrupts
from linkflap.harness.model.errors import DeadlineExceeded, EnvironmentFailure, SetupError
from linkflap.harness.model.wait import until
from linkflap.spark_verify.spark import job, masters, pandas_free

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
        class_path(),
        "org.apache.spark.deploy.SparkSubmit",
        "pyspark-shell",
    ]
    # Python workers inherit the environment of the JVM, and must find every module with a check.
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
    # The JVM ends when its standard input does. If Spark's shutdown hangs halfway through a start
    # (seen), the watchdog ends it.
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
    """The line of a Java or Python trace that names the error."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    telling = [line for line in lines if re.match(r"(\S+\s)?[\w.]*(Error|Exception)\b.*", line)]
    return (telling or lines or ["it printed nothing"])[-1]


_MADE_WITHIN: Final = 120.0
_WARM_WITHIN: Final = 900.0
_ARCHIVED: Final = 300.0
"""Seconds for a JVM to write its classes, some hundred MiB, on a machine with much else to do."""
_ENDS_WITHIN: Final = 10.0
_MOURNED: Final = 10.0
"""Seconds within which a JVM ends after it broke its connection."""
STOPPED_WITHIN: Final = 30.0
"""Seconds for which a stopped process of Spark is waited for."""
_LOOKS_EVERY: Final = 1.0
LOG: Final = logging.getLogger("linkflap")
_ended: Final[dict[int, str]] = {}
"""Why a JVM was ended, by its pid."""
_lock = threading.Lock()
_started: Future[SparkSession] | None = None
_jvm: subprocess.Popen[bytes] | None = None
_room = contextlib.ExitStack()
"""The folder of the present JVM: everything that Spark writes is in it, and is removed with the
JVM, or with this process."""
_leaving = False
_archive: cache.BegunEntry | None = None
"""The class archive that the present JVM writes if it ends by itself."""
_has_judged = False


def warm() -> Future[SparkSession]:
    """Begins to start Spark in the background and runs the verifier's query once on nothing, so
    that the first is fast.

    The same future for every call in a process, until `close`. Its result raises SetupError if
    Spark cannot start.
    """
    return _begun(masters.LOCAL, {}, query=True)


def _begun(master: str, settings: Mapping[str, str], *, query: bool) -> Future[SparkSession]:
    global _started
    with _lock:
        if _started is None:
            _started = Future()
            args = (_started, master, settings, query)
            threading.Thread(target=_fill, args=args, name="spark-warm-up", daemon=True).start()
        return _started


def session(master: str = masters.LOCAL, settings: Mapping[str, str] | None = None) -> SparkSession:
    """The session; starts it if necessary. Raises SetupError, one sentence, if Spark cannot start.

    On a cluster it has answered a query, because only executors can report what they lack. In a
    local JVM that query would cost a seventh of a verdict. There is a deadline, because an error in
    one of the JVM's own threads leaves the first query without an answer forever.
    """
    try:
        return _begun(master, settings or {}, query=not masters.is_local(master)).result(
            timeout=_WARM_WITHIN
        )
    except TimeoutError:
        close()
        needs = (
            "linkflap doctor says what it needs"
            if masters.is_local(master)
            else f"see that {master} has workers that are free"
        )
        raise SetupError(
            f"Spark started and did not answer within {_WARM_WITHIN:g} s; {needs}"
        ) from None


def keep_classes() -> None:
    """The JVM has loaded what a verdict needs: at its end it writes a class archive, if there is
    none yet."""
    global _has_judged
    _has_judged = True


def tell_what_is_written() -> None:
    """Says why `close` takes longer, where the JVM writes a class archive."""
    if _jvm is not None and _writes(_jvm):
        LOG.info(
            "first use: Spark's classes are written to the cache, so that it starts faster (10 s "
            "on an idle machine, once per Java and pyspark); Ctrl-C leaves that out"
        )


def _writes(jvm: subprocess.Popen[bytes]) -> bool:
    """Whether the JVM is to write its class archive: it has judged, and nobody waits for the end of
    this process."""
    judged = _archive is not None and _has_judged
    return judged and jvm.poll() is None and not interrupts.asked()


def close() -> None:
    """Ends Spark and its JVM; safe to call twice, and when it never started."""
    global _started, _jvm
    with _lock:
        started, _started = _started, None
        jvm, _jvm = _jvm, None
    if started is not None and started.done() and started.exception() is None:
        # A JVM that died cannot be asked to stop; what is left of it here must go all the same.
        with (
            contextlib.suppress(Py4JError, OSError),
            warnings.catch_warnings(),
            ended_if_stopped(jvm),
        ):
            # pyspark warns of a JVM that crashed; the caller of the job gets an error in words of
            # ours (`reason_of_failure`).
            warnings.simplefilter("ignore", RuntimeWarning)
            started.result().stop()
    if jvm is not None:
        # pyspark keeps the gateway for ever, and would talk to the dead one when a session is asked
        # for again.
        gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
        if gateway is not None:
            gateway.shutdown()
        _end(jvm)
        # pyspark could not clear these for a JVM that was ended.
        SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
    _room.close()
    os.environ.pop("PYSPARK_GATEWAY_PORT", None)
    os.environ.pop("PYSPARK_GATEWAY_SECRET", None)


@atexit.register
def _leave() -> None:
    """Spark ends with this process, also where it is only being started in the background."""
    global _leaving
    with _lock:
        _leaving = True
    with contextlib.suppress(KeyboardInterrupt):  # nothing is left to be interrupted
        close()


def _end(jvm: subprocess.Popen[bytes]) -> None:
    """Ends the JVM. One that writes a class archive when it ends is waited for, or is killed
    first."""
    global _archive
    keeps = _writes(jvm)
    archive, _archive = _archive, None
    identity = process_identity.identify(jvm.pid)
    try:
        if archive and not keeps:
            jvm.kill()
        if jvm.stdin is not None:
            jvm.stdin.close()
        jvm.wait(_ARCHIVED if archive else _ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        pass
    except KeyboardInterrupt:
        if not archive:  # else it leaves out the archive, no more
            raise
    finally:
        if jvm.poll() is None:
            jvm.kill()
            jvm.wait()
        if archive:
            archive.end(complete=keeps and jvm.returncode == 0)
        if identity is not None:
            ledger.remove_child(identity)


def _fill(
    future: Future[SparkSession], master: str, settings: Mapping[str, str], query: bool
) -> None:
    try:
        cache.name_compiled()
        if not cache.has_compiled():
            cache.LOG.info(
                "first use: the code that reads logs is compiled (numba, 10 s on an idle machine, "
                "once per linkflap), so the first verdict takes longer"
            )
        spark = _start(master, settings)
        try:
            if query:
                job.warm_up(spark)
        except BaseException:
            spark.stop()
            raise
        future.set_result(spark)
    except EnvironmentFailure as error:
        future.set_exception(error)
    except (Py4JError, PySparkException, OSError) as error:
        needs = (
            "linkflap doctor says what it needs"
            if masters.is_local(master)
            else _executors_need(str(error))
        )
        future.set_exception(SetupError(f"Spark did not start: {cause(str(error))}; {needs}"))
    except BaseException as error:  # noqa: BLE001 - whoever waits for the session must not wait forever
        future.set_exception(error)


def _executors_need(printed: str) -> str:
    if "No module named" in printed or "Cannot run program" in printed:
        return (
            f"executors need a Python with linkflap in it, named by --spark {masters.PYTHON}=PATH"
        )
    if "stopped SparkContext" in printed:
        return (
            "the cluster ended the application because its executors failed repeatedly; see their "
            "logs on the workers"
        )
    return "see --master in linkflap docs scale"


def _start(master: str, given: Mapping[str, str]) -> SparkSession:
    """A new session."""
    masters.check(master)
    if find_spec("pandas") is None:  # pyspark would ask for this even where it is not needed
        pandas_free.settle()
    pandas_free.ask_numpy()
    os.environ["PYSPARK_PYTHON"] = masters.python(master, given)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = masters.address(master)
    # py4j logs the trace of every exception that it raises: pages of them when the JVM dies.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    _open_gateway(given.get(masters.DRIVER_MEMORY, masters.HEAP))
    builder = SparkSession.builder.master(master)
    for name, value in masters.settings(master, given).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # When the JVM dies this thread of pyspark's prints a trace, of accumulators that no job here
    # has; `reason_of_failure` says what died.
    vars(spark.sparkContext._accumulatorServer)["handle_error"] = lambda request, address: None
    return spark


def _open_gateway(heap: str = masters.HEAP) -> None:
    """Starts the JVM and tells pyspark where its gateway is."""
    global _jvm
    java = java_for("4")  # Spark needs Java 17 or later, like Kafka 4
    options = [f"-Xmx{heap}", *archive_options(java)]
    folder = _room.enter_context(cleanup.temporary_folder("linkflap-spark-"))
    gateway = folder / "gateway"
    printed = folder / "printed"
    # One critical section: a process that ended between the two would leave a JVM that no ledger
    # names.
    with printed.open("wb") as out, _lock:
        if _leaving:
            raise SetupError("Spark is not started any more: this process ends")
        jvm = _jvm = launch(java.path, options, gateway, out)
    try:
        until(
            lambda: gateway.exists() or jvm.poll() is not None,
            within=_MADE_WITHIN,
            what="Spark's JVM to open its gateway",
        )
    except DeadlineExceeded as error:
        close()
        raise SetupError(
            f"Spark did not start: {error}; the machine may be too busy, run it again"
        ) from None
    if not gateway.exists():
        text = printed.read_text(errors="replace")
        reason = cause(text)
        close()
        if "heap" in text:  # the JVM's own words, where it cannot have as much as its options say
            why = next(line for line in text.splitlines() if "heap" in line)
            raise SetupError(
                f"Spark did not start: {why}; give it less: --spark {masters.DRIVER_MEMORY}=1g"
            )
        raise SetupError(
            f"Spark did not start with {java.path}: {reason}; set JAVA_HOME to Java 17 or later"
        )
    # Java's DataOutputStream: port i32, length i32, secret.
    content = gateway.read_bytes()
    (port,) = struct.unpack_from(">i", content)
    os.environ["PYSPARK_GATEWAY_PORT"] = str(port)
    os.environ["PYSPARK_GATEWAY_SECRET"] = content[8:].decode()


@contextlib.contextmanager
def ended_if_stopped(jvm: subprocess.Popen[bytes] | None = None) -> Iterator[None]:
    """While the block waits for Spark: a JVM or worker of it that somebody stopped (SIGSTOP) would
    be waited for without end. It is named, and after a while all of Spark is ended."""
    with _lock:
        jvm = jvm or _jvm
    over = threading.Event()
    if jvm is not None:
        threading.Thread(
            target=_end_if_stopped, args=(jvm, over), name="spark-stopped", daemon=True
        ).start()
    try:
        yield
    finally:
        over.set()


def _end_if_stopped(jvm: subprocess.Popen[bytes], over: threading.Event) -> None:
    since = 0.0
    while not over.wait(_LOOKS_EVERY):
        stopped = [each for each in _processes(jvm) if _is_stopped(each)]
        if not stopped:
            since = 0.0
        elif not since:
            since = time.monotonic()
            LOG.warning(
                "process %d of Spark is stopped (SIGSTOP); let it go on (kill -CONT %d), or Spark "
                "is ended in %d s", stopped[0].pid, stopped[0].pid, STOPPED_WITHIN,
            )  # fmt: skip
        elif time.monotonic() - since > STOPPED_WITHIN:
            _ended[jvm.pid] = f"process {stopped[0].pid} was stopped for {STOPPED_WITHIN:g} s"
            for each in reversed(_processes(jvm)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
            return


def _processes(jvm: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """The JVM and what it started; nothing once it has ended."""
    with contextlib.suppress(psutil.NoSuchProcess):
        if jvm.poll() is None:
            process = psutil.Process(jvm.pid)
            return [process, *process.children(recursive=True)]
    return []


def _is_stopped(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_STOPPED)
    return False


def reason_of_failure(error: BaseException) -> str:
    """The reason of an error during a job: that the JVM died, and its cause; else Spark's own
    reason."""
    with _lock:
        jvm = _jvm
    # A living JVM reports Java's own exceptions. The connection to a dying one breaks a moment
    # before its exit status is known.
    within = 0.0 if isinstance(error, Py4JJavaError | PySparkException) else _MOURNED
    if jvm is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = jvm.wait(within)
            return _ended.get(jvm.pid) or f"Spark's JVM {death(status)}"
    return cause(str(error))


_ARCHIVE: Final = "spark"


@remembered
def class_path() -> str:
    """Spark's jars in one order: an archive belongs to a class path, and a wildcard is whatever
    order a folder has."""
    return os.pathsep.join(
        str(jar) for jar in sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    )


def archive_options(java: Java) -> list[str]:
    """Options that make a JVM use the class archive, or write it when it ends; none where another
    process writes it, or this Java wrote none."""
    global _archive
    name = _archive_name(java)
    try:
        if kept := cache.kept(name):
            archive = kept / _ARCHIVE
            return with_archive(java, archive) if archive.is_file() else []
        _archive = cache.begun(name)
    except SetupError as error:
        LOG.info("Spark starts without a class archive, some seconds slower: %s", error)
    return writing_archive(java, _archive.folder / _ARCHIVE) if _archive else []


def _archive_name(java: Java) -> str:
    """The archive's folder in the cache. Its name differs for two Javas, two pysparks, and a
    reinstalled pyspark."""
    jars = [(jar, os.stat(jar).st_mtime_ns) for jar in class_path().split(os.pathsep)]
    state = f"{java.path}{java.path.stat().st_mtime_ns}{jars}"
    digest = hashlib.sha256(state.encode()).hexdigest()
    return f"archives/spark{pyspark.__version__}-java{java.major}-{digest[:12]}"

"""Spark elsewhere: a standalone master with workers in another directory and Python, and the Java
from PyPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from linkflap.harness.machine.java import java_for
from linkflap.harness.machine.leases import Lease
from linkflap.harness.machine.wheels import JAVA
from linkflap.harness.model import errors
from linkflap.spark_verify.verify import VERDICT_FILE
from tests.command_line import environment, ran
from tests.copied_logs import sound
from tests.kafka_log import batches_in, changed, rewrite
from tests.waiting import eventually

HERE = Path(__file__).parents[2]
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""As linkflap's own JVMs of Spark: these live for seconds."""
DRIVER = """
import dataclasses, json, os, pathlib, signal, sys
import psutil
from click.testing import CliRunner
from linkflap.cli.commands import linkflap
from linkflap.spark_verify.spark import session
from linkflap.spark_verify import verify

answers = []
commands = json.load(sys.stdin)
check = verify.REGISTRY["leader-epochs"]
killed = pathlib.Path.cwd() / "killed"

def kernel(view):
    if not killed.exists():
        killed.touch()
        java = next(p.pid for p in psutil.Process().parents() if p.name() == "java")
        os.kill(java, signal.SIGKILL)
    return check.kernel(view)

for arguments in commands:
    if arguments is commands[-1]:
        broken = dataclasses.replace(check, kernel=kernel)
        verify.REGISTRY = {**verify.REGISTRY, "leader-epochs": broken}
    result = CliRunner().invoke(linkflap, arguments, standalone_mode=False)
    error = result.exception
    answer = {"code": result.return_value, "error": str(error or "")}
    answers.append({**answer, "exit": getattr(error, "exit_code", None)})
spark = session.session()
where = lambda _: __import__("linkflap.spark_verify").spark_verify.__file__
found = spark.sparkContext.parallelize(range(4), 4).map(where).collect()
session.close()
print(json.dumps({"answers": answers, "found": found}))
"""


def says(said: Path, text: str) -> None:
    eventually(
        f"{said.parent.name} to say {text!r}",
        lambda: text in said.read_text(),
        state=said.read_text,
        within=300,
    )


@pytest.fixture(scope="module")
def master(elsewhere: Path) -> Iterator[str]:
    """The URL of a master with a worker of two cores."""
    lease = Lease()
    (port,) = lease.ports(1)
    url = f"spark://127.0.0.1:{port}"
    spark, java = Path(pyspark.__file__).parent, java_for("4").path
    kept = {
        "PATH": "/usr/bin:/bin",
        "JAVA_HOME": str(java.parent.parent),
        "SPARK_HOME": str(spark),
        "HOME": str(elsewhere),
    }
    # What Spark's own scripts set, and that its interface for browsers listens on loopback too.
    kept |= {"SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> Path:
        folder = elsewhere / name
        folder.mkdir()
        said = folder / "said"
        command = [str(java), "-Xmx256m", *QUICK, "-cp", f"{spark}/jars/*", *arguments]
        with said.open("wb") as out:
            started.append(
                subprocess.Popen(
                    command, cwd=folder, env=kept, stdout=out, stderr=subprocess.STDOUT
                )
            )
        return said

    try:
        web = ["--host", "127.0.0.1", "--webui-port", "0"]
        said = start("master", "org.apache.spark.deploy.master.Master", *web, "--port", str(port))
        says(said, "I have been elected leader")
        room = ["--cores", "2", "--memory", "1g", "--work-dir", str(elsewhere / "worker" / "apps")]
        said = start("worker", "org.apache.spark.deploy.worker.Worker", *web, *room, url)
        says(said, "Successfully registered with master")
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(60)
        lease.release()


@pytest.fixture(scope="module")
def judged(
    elsewhere: Path, master: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, Any]]:
    """The driver's results: for equal logs, for different logs, for a path that differs between
    processes, and for the equal logs again while an executor is killed in a check."""
    root = tmp_path_factory.mktemp("driver")
    for cluster in "ABC":
        for number in range(3):
            sound(root / cluster / f"orders-{number}")
    path = root / "C" / "orders-1" / "00000000000000000000.log"
    batches = [data for _, data in batches_in(path)]
    rewrite(path, [batches[0], changed(batches[1], leader_epoch=3, pid=9), *batches[2:]])
    python = f"spark.pyspark.python={elsewhere / 'python' / 'bin' / 'python'}"
    settings = (
        python,
        "spark.executor.memory=512m",
        "spark.executor.cores=1",  # so that there are two executors
        f"spark.executor.extraJavaOptions={' '.join(QUICK)}",
    )
    where = ["--master", master, *(word for each in settings for word in ("--spark", each))]

    def verify(other: str, *rest: str) -> list[str]:
        return [
            "verify",
            "--logs",
            f"A={root / 'A'}",
            "--logs",
            f"{other}={root / other}",
            "--link",
            f"A->{other}",
            *where,
            *rest,
        ]

    commands = [
        verify("B", "--out", "equal", "--json"),
        verify("C", "--out", str(root / "other"), "--json"),
        ["verify", "/proc/self/cwd/equal", *where],
        ["verify", "equal", "--json", *where],
    ]
    done = ran(
        [sys.executable, "-c", DRIVER],
        within=900,
        env=environment(root / "ledger") | {"PYTHONPATH": str(HERE)},
        cwd=root,
        input=json.dumps(commands),
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return root, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.spark
def test_executors_elsewhere_read_and_judge(
    judged: tuple[Path, dict[str, Any]], elsewhere: Path
) -> None:
    root, answers = judged
    equal = answers["answers"][0]
    assert (equal["error"], equal["code"]) == ("", errors.VALID), equal
    document = json.loads((root / "equal" / VERDICT_FILE).read_bytes())
    assert document["verdict"] == "valid"
    (byte_equality,) = (c for c in document["checks"] if c["name"] == "byte-equality")
    assert byte_equality["examined"] == {"B/mirrored": 18}
    assert {Path(path).parents[5] for path in answers["found"]} == {elsewhere / "python"}
    assert len(list(elsewhere.glob("worker/apps/app-*"))) >= 1


@pytest.mark.spark
def test_findings_are_in_parquet_too(judged: tuple[Path, dict[str, Any]]) -> None:
    root, answers = judged
    assert answers["answers"][1]["code"] == errors.INVALID
    found = pq.read_table(root / "other" / "findings.parquet").to_pylist()
    document = json.loads((root / "other" / VERDICT_FILE).read_bytes())
    assert {(r["check"], r["kind"], r["partition"], r["offset"]) for r in found} == {
        (a["check"], a["kind"], a["partition"], a["offset"]) for a in document["anomalies"]
    }
    assert ("byte-equality", "byte-divergence", 1, 2) in {
        (r["check"], r["kind"], r["partition"], r["offset"]) for r in found
    }
    examined = pq.read_table(root / "other" / "examined.parquet").to_pylist()
    counted = sum(r["count"] for r in examined if r["check"] == "byte-equality")
    assert counted == 18


@pytest.mark.spark
def test_an_executor_that_cannot_see_a_path_is_named_with_it(
    judged: tuple[Path, dict[str, Any]], elsewhere: Path
) -> None:
    _, answers = judged
    unseen = answers["answers"][2]
    assert unseen["exit"] == errors.FAILED, unseen
    assert "cannot see /proc/self/cwd/equal/" in unseen["error"]
    assert str(elsewhere / "worker") in unseen["error"]
    assert "put the logs on storage that every executor has at the same path" in unseen["error"]


@pytest.mark.spark
def test_an_executor_that_is_killed_in_a_check_changes_nothing(
    judged: tuple[Path, dict[str, Any]],
) -> None:
    root, answers = judged
    assert (root / "killed").exists()
    again = answers["answers"][3]
    assert (again["error"], again["code"]) == ("", errors.VALID), again
    assert json.loads((root / "equal" / VERDICT_FILE).read_bytes())["verdict"] == "valid"


# Spark on the Java from PyPI, newer and smaller than a distribution's: on a machine with Python
# only.


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
    done = ran([sys.executable, "-c", ASK], env=environment | {"PATH": str(tmp_path)})
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["java", JAVA.partition("==")[2].rpartition(".")[0]]

"""Spark: where it runs, its one job, its processes and memory, and its progress."""

from __future__ import annotations

import io
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import psutil
import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from rich.console import Console

from linkflap.harness.log.segments import Ints
from linkflap.harness.model.errors import InputError, SetupError
from linkflap.harness.model.wait import until
from linkflap.report.progress import COUNTERS_EVERY, PlainLines, Screen
from linkflap.spark_verify.checks import REGISTRY, inconsistent_offset
from linkflap.spark_verify.checks.base import (
    Check,
    Combined,
    Examined,
    Found,
    Measured,
    PartialFinding,
    Unjudged,
)
from linkflap.spark_verify.checks.finding_rows import examine
from linkflap.spark_verify.checks.log_model import logs
from linkflap.spark_verify.facts.view import PartitionView
from linkflap.spark_verify.read import log_rows, pieces
from linkflap.spark_verify.read.assemble import view
from linkflap.spark_verify.read.plan import RunPlan, plan
from linkflap.spark_verify.spark import job, masters, session
from linkflap.spark_verify.spark.job import COMBINED, JUDGED, READ, JobWatch
from tests.command_line import ran
from tests.kafka_log import batches_in, field_of, segment
from tests.run_copy import views
from tests.synthetic import ENDED, TOPIC, Shape, same, write_run
from tests.traced import peak

# The one Spark job: views that passed through Spark equal those read without it, and every
# finding arrives.


def check(name: str, kernel: object, combine: object = None) -> Check:
    return Check(
        name=name, guarantee="", source="", inputs=frozenset(), anomalies=(),
        kernel=kernel, combine=combine,  # type: ignore[arg-type]
    )  # fmt: skip


def dumped(view: PartitionView) -> list[Found]:
    return [
        Found(
            kind="view",
            cluster="",
            offset=view.partition,
            evidence={"pickle": pickle.dumps(view).hex()},
        )
    ]


def every_kind(view: PartitionView) -> list[object]:
    records = view.canonical()["B"].records
    return [
        Found(
            kind="noun",
            cluster="B",
            offset=records.offset[-1],
            evidence={"uid": records.uid[0], "all": records.uid[:2]},
        ),
        Examined(cluster="A", origin="native", count=len(view.canonical()["A"].records)),
        Unjudged(reason="because"),
        PartialFinding(cluster="B", offset=3, data={"partition": view.partition}),
    ]


def joined(partials: list[PartialFinding]) -> list[Combined]:
    seen = [(c.topic, c.partition, c.data["partition"]) for c in partials]
    return [
        Combined(
            found=Found(kind="joined", cluster="B", offset=1, evidence={"seen": seen}),
            topic=TOPIC,
            partition=0,
        )
    ]


def columns(view: PartitionView) -> list[object]:
    """Both partitions say the same word in their first partial finding, and one each in another."""
    numbers = np.arange(5, dtype=np.int64) + 10 * view.partition
    words = ("both", f"only {view.partition}")
    return [
        PartialFinding(cluster="B", offset=at, data={"numbers": numbers, "at": at}, together=word)
        for at, word in enumerate(words)
    ]


def summed(partials: list[PartialFinding]) -> list[Combined]:
    if not partials:
        return []
    evidence = {
        "word": [c.together for c in partials],
        "sum": sum(int(cast(Ints, c.data["numbers"]).sum()) for c in partials),
    }
    return [
        Combined(
            found=Found(kind="summed", cluster="B", offset=1, evidence=evidence),
            topic=TOPIC,
            partition=0,
        )
    ]


def crash(view: PartitionView) -> list[object]:
    raise ZeroDivisionError(f"partition {view.partition}")


@pytest.mark.spark
def test_views_that_crossed_spark_equal_those_that_did_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    roots = [
        write_run(tmp_path / "one", Shape(transactions=30)),
        write_run(tmp_path / "two", Shape(partitions=3, codec="lz4")),
    ]
    found = job.findings(spark, roots, [check("dump", dumped)])
    crossed = {
        (row.run, row.partition): pickle.loads(bytes.fromhex(str(row.data["pickle"])))
        for row in found
    }
    direct = {(view.run, view.partition): view for root in roots for view in views(root)}
    assert len(direct) == 5
    assert crossed.keys() == direct.keys()
    assert all(same(crossed[key], direct[key]) for key in direct)


@pytest.mark.spark
def test_a_log_that_several_tasks_read_is_one_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_run(tmp_path / "run", Shape(transactions=30))
    for path in sorted((root / "captures").glob("*/*/*/*/*.log")):
        data = [each for _, each in batches_in(path)]
        for some in (data[start : start + 16] for start in range(0, len(data), 16)):
            segment(path.parent, some, base_offset=field_of(some[0], "base_offset"))
    monkeypatch.setattr(pieces, "_APART", 1)
    assert (
        max(captured.piece for task in pieces.pieces([plan(root)]) for captured in task.replicas)
        == 3
    )
    found = job.findings(spark, [root], [check("dump", dumped)])
    crossed = [
        pickle.loads(bytes.fromhex(str(row.data["pickle"])))
        for row in found
        if row.finding == "found"
    ]
    assert same(sorted(crossed, key=lambda view: view.partition), list(views(root)))
    assert not any(replica.damage for view in crossed for replica in view.replicas)


@pytest.mark.spark
def test_every_kind_of_finding_arrives(spark: SparkSession, tmp_path: Path) -> None:
    root = write_run(tmp_path / "run")
    checks = [check("kinds", every_kind, joined), check("crash", crash), check("plain", dumped)]
    found = job.findings(spark, [root], checks)
    kinds = [row for row in found if row.check == "kinds"]
    assert sorted(row.finding for row in kinds) == [
        "examined",
        "examined",
        "found",
        "found",
        "found",
        "unjudged",
        "unjudged",
    ]
    (both,) = [row for row in kinds if row.kind == "joined"]
    assert both.data == {"seen": [[TOPIC, 0, 0], [TOPIC, 1, 1]]}
    noun = next(row for row in kinds if row.kind == "noun" and row.partition == 1)
    assert noun.data == {"uid": 2 << 40, "all": [2 << 40, (2 << 40) + 1]}
    assert (noun.topic, noun.cluster, noun.offset) == (TOPIC, "B", 38)
    assert [row.count for row in kinds if row.finding == "examined"] == [30, 30]
    crashed = [row for row in found if row.check == "crash"]
    assert {(row.finding, row.data["reason"]) for row in crashed} == {
        ("crashed", f"ZeroDivisionError: partition {partition}") for partition in range(2)
    }
    assert len([row for row in found if row.check == "plain"]) == 2, (
        "a crash hides nobody else's findings"
    )


@pytest.mark.spark
def test_partial_findings_are_combined_with_those_that_they_belong_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    kept = replace(
        check("kept", columns, summed), measure=lambda _partial, _events: Measured(failovers=())
    )
    found = job.findings(
        spark, [write_run(tmp_path / "run")], [check("columns", columns, summed), kept]
    )
    for name in ("columns", "kept"):
        combined = [
            (row.data["word"], row.data["sum"])
            for row in found
            if (row.check, row.finding) == (name, "found")
        ]
        assert sorted(combined) == [(["both", "both"], 70), (["only 0"], 10), (["only 1"], 60)]
    assert sorted(row.together for row in found if row.finding == "partial") == [
        "both",
        "both",
        "only 0",
        "only 1",
    ]


@pytest.mark.spark
def test_damage_of_any_part_arrives(spark: SparkSession, tmp_path: Path) -> None:
    root = write_run(tmp_path / "run")
    (root / "captures" / ENDED / "bounds.json").unlink()
    with (root / "operations" / "transactional-1.jsonl").open("ab") as file:
        file.write(b"{")
    found = job.findings(spark, [root], [check("dump", dumped)])
    damage = {
        (str(row.data["path"]), str(row.data["reason"])) for row in found if row.finding == "damage"
    }
    assert any(
        path == "operations/transactional-1.jsonl" and "torn" in reason for path, reason in damage
    )
    assert any(path.endswith("bounds.json") for path, _ in damage)


@pytest.mark.spark
def test_the_same_session_judges_again_after_the_bytes_changed(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = write_run(tmp_path / "run")
    counting = check("kinds", every_kind)

    def native() -> list[int]:
        return [
            row.count
            for row in job.findings(spark, [root], [counting])
            if row.finding == "examined"
        ]

    assert native() == [30, 30]
    path = next((root / "captures").glob(f"*/A/1/{TOPIC}-0/*.log"))
    path.write_bytes(b"")
    assert sorted(native()) == [0, 30]


# Spark's JVM: it dies with the process, and if it cannot start, one sentence says so.


OPENS = """
import sys
from linkflap.spark_verify.spark import session
session.warm().result()
print(session._jvm.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.spark
def test_a_killed_harness_leaves_no_jvm_and_nothing_that_it_wrote(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"} | {
        "TMPDIR": str(tmp_path)
    }
    with subprocess.Popen(
        [sys.executable, "-c", OPENS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env
    ) as harness:
        assert harness.stdout is not None
        jvm = psutil.Process(int(harness.stdout.readline()))
        assert jvm.is_running()
        workers = jvm.children(recursive=True)
        assert len(workers) >= 2, "the process that workers are forked from, and a worker"
        assert jvm.nice() == psutil.Process(harness.pid).nice(), (
            "on a busy machine a verdict would wait for everybody else"
        )
        (folder,) = tmp_path.glob("linkflap-spark-*")
        assert list(folder.glob("blockmgr-*"))
        os.kill(harness.pid, signal.SIGKILL)
    until(
        lambda: not jvm.is_running() or jvm.status() == psutil.STATUS_ZOMBIE,
        within=60,
        what="the JVM to end",
        state=jvm.status,
    )
    until(
        lambda: not psutil.wait_procs(workers, timeout=0)[1],
        within=60,
        what="its Python workers to end",
    )
    until(
        lambda: not folder.exists(),
        within=60,
        what="its folder to go",
        state=lambda: list(tmp_path.rglob("*")),
    )
    assert [left.name for left in tmp_path.iterdir()] == [f"linkflap-{os.getuid()}"], (
        "the ledger stays"
    )


FAILS = """
import sys
from pathlib import Path
from linkflap.harness.model.errors import SetupError
from linkflap.harness.machine.java import Java
from linkflap.spark_verify.spark import session
session.java_for = lambda kafka: Java(path=Path(sys.argv[1]), major=17)
try:
    session._open_gateway()
except SetupError as error:
    print(error, session._jvm)
"""


def test_a_java_that_fails_is_one_sentence(tmp_path: Path) -> None:
    """In its own process: in this one a session may be open, and there is one JVM per process."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'Error: could not find a thing' >&2\nexit 1\n")
    java.chmod(0o755)
    env = os.environ | {"LINKFLAP_CACHE": str(tmp_path / "cache")}
    done = ran([sys.executable, "-c", FAILS, str(java)], within=120, env=env, check=True)
    assert re.fullmatch(
        r"Spark did not start with .*could not find a thing; set JAVA_HOME.* None\n", done.stdout
    ), done.stdout


def test_the_telling_line_of_a_trace() -> None:
    trace = (
        "Traceback (most recent call last):\n  File x\nlinkflap.harness.model.errors.InputError: no"
        " run.json\n SQLSTATE"
    )
    assert session.cause(trace) == "linkflap.harness.model.errors.InputError: no run.json"
    assert session.cause('Exception in thread "main" java.lang.NoClassDefFoundError: A').endswith(
        "NoClassDefFoundError: A"
    )
    assert session.cause("") == "it printed nothing"


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ("kill -9 $$", "was killed by SIGKILL"),
        ("exit 3", "ran out of memory"),
        ("exit 1", "died with exit status 1"),
    ],
)
def test_a_dead_jvm_is_reported_as_dead(
    ends: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with subprocess.Popen(["sh", "-c", ends]) as jvm:
        monkeypatch.setattr(session, "_jvm", jvm)
        assert (
            session.reason_of_failure(Py4JError("An error occurred while calling o228.getResult"))
            == f"Spark's JVM {said}"
        )


def test_the_error_of_a_live_jvm_is_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as jvm:
        monkeypatch.setattr(session, "_jvm", jvm)
        assert (
            session.reason_of_failure(PySparkException("org.apache.spark.SparkException: no"))
            == "org.apache.spark.SparkException: no"
        )
    monkeypatch.setattr(session, "_jvm", None)
    assert session.reason_of_failure(OSError("gone")) == "gone"


# Python workers are forked from a process that has imported everything and has one thread; none
# of linkflap's processes imports pandas.


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
    done = ran([sys.executable, "-c", program], within=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark's own daemon serves")
def test_worker_modules_are_imported_in_one_thread_and_a_fork_can_use_them() -> None:
    assert output_of(IMPORTED) == "True 0"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere Spark's own daemon serves")
def test_library_that_starts_a_thread_leaves_forking_to_sparks_daemon() -> None:
    output_of(THREADED)


def test_pandas_can_be_imported_later() -> None:
    assert output_of(LATER) == "1 2"


def test_pandas_that_is_there_already_is_left_as_it_is() -> None:
    assert output_of(BEFORE) == "3"


def test_the_process_that_plans_a_verdict_imports_neither_numba_nor_pandas() -> None:
    assert output_of(ASKED) == "[]\nTrue"


# The progress of a job in words: that of its furthest stage that has begun; and its display.


Stage = tuple[int, int, int]


class Tracker:
    """Stages of one job as Spark's status tracker returns them: (active, completed, tasks), None
    for a stage without them yet."""

    def __init__(self, *stages: Stage | None) -> None:
        self.stages = stages

    def statusTracker(self) -> Tracker:
        return self

    def getActiveJobsIds(self) -> list[int]:
        return [3] if self.stages else []

    def getJobInfo(self, job: int) -> SimpleNamespace:
        return SimpleNamespace(stageIds=[10 + n for n in reversed(range(len(self.stages)))])

    def getStageInfo(self, stage: int) -> SimpleNamespace | None:
        found = self.stages[stage - 10]
        return found and SimpleNamespace(
            numActiveTasks=found[0], numCompletedTasks=found[1], numTasks=found[2]
        )


def lines(*looks: list[Stage | None]) -> list[tuple[object, ...]]:
    said: list[tuple[object, ...]] = []
    for stages in looks:
        JobWatch(cast(SparkContext, Tracker(*stages)), lambda *what: said.append(what)).look()
    return said


def test_the_furthest_stage_that_has_begun_is_reported() -> None:
    assert lines([], [None, None]) == []
    assert lines([(2, 5, 8), None, None]) == [(READ, 5, 8)]
    assert lines([(0, 8, 8), (1, 1, 4), None]) == [(JUDGED, 1, 4)]
    assert lines([(0, 8, 8), (2, 2, 4), None]) == [(JUDGED, 2, 4)]
    assert lines([(0, 8, 8), (0, 4, 4), (1, 0, 2)]) == [(COMBINED, 0, 2)]


def test_unchanged_progress_is_not_reported_again() -> None:
    said: list[tuple[object, ...]] = []
    watch = JobWatch(cast(SparkContext, Tracker((2, 5, 8))), lambda *what: said.append(what))
    watch.look()
    watch.look()
    assert said == [(READ, 5, 8)]


def test_plain_lines_show_spark_progress_now_and_then() -> None:
    out, now = io.StringIO(), [0.0]
    with PlainLines(out, clock=lambda: now[0]) as lines:
        lines.phase("judging")
        for count in range(1, 9):
            now[0] += COUNTERS_EVERY / 2
            lines.done("pieces read", count, 8)
    assert [
        line.split(maxsplit=3)[3] for line in out.getvalue().splitlines() if " count " in line
    ] == [f"{count} of 8 pieces read" for count in (2, 4, 6, 8)]


def test_screen_shows_spark_progress_beside_the_phase() -> None:
    screen = Screen(Console(file=io.StringIO(), width=120), clock=lambda: 0.0)
    screen.phase("judging")
    screen.done("pieces read", 3, 8)
    out = io.StringIO()
    console = Console(file=out, width=120)
    console.print(screen.frame())
    assert "judging  3 of 8 pieces read" in out.getvalue()
    screen.phase("reporting")
    console.print(screen.frame())
    assert "reporting  3 of" not in out.getvalue()


# Where Spark runs: which masters are valid, which settings Spark gets, and which a user may
# set.


def test_here_everything_is_on_loopback_and_in_this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/somewhere/python")
    settings = masters.settings(masters.LOCAL, {})
    assert (settings["spark.driver.host"], settings["spark.driver.bindAddress"]) == (
        "127.0.0.1",
        "127.0.0.1",
    )
    assert settings["spark.sql.python.filterPushdown.enabled"] == "false"
    assert masters.python(masters.LOCAL, {}) == sys.executable


def test_on_a_cluster_the_driver_has_an_address_that_the_master_reaches() -> None:
    assert masters.address("spark://127.0.0.1:7077") == "127.0.0.1"
    assert masters.settings("yarn", {})["spark.driver.host"] == "127.0.0.1"
    given = masters.settings("spark://127.0.0.1:7077", {"spark.driver.host": "driver-1"})
    assert given["spark.driver.host"] == "driver-1"


def test_the_executors_python_is_the_given_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert masters.python("spark://m:7077", {}) == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert masters.python("spark://m:7077", {}) == "/opt/python"
    assert masters.python("spark://m:7077", {masters.PYTHON: "/other/python"}) == "/other/python"


@pytest.mark.parametrize(
    "master", ["local", "local[*]", "local[4]", "local[2,3]", "yarn", "k8s://https://host:443"]
)
def test_masters_that_need_no_reachability_test(master: str) -> None:
    masters.check(master)


@pytest.mark.parametrize(
    "master",
    ["", "7077", "localhost:7077", "spark://", "spark://host", "local[x]", "mesos://host:1"],
)
def test_invalid_masters(master: str) -> None:
    with pytest.raises(SetupError, match=r"is no Spark master; give spark://HOST:7077"):
        masters.check(master)


def test_one_answering_master_of_several_is_enough() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as there,
        socket.create_server(("127.0.0.1", 0)) as other,
    ):
        port, closed = there.getsockname()[1], other.getsockname()[1]
        other.close()
        masters.check(f"spark://127.0.0.1:{closed},127.0.0.1:{port}")
        with pytest.raises(
            SetupError, match=f"no Spark master answers at spark://127.0.0.1:{closed} "
        ):
            masters.check(f"spark://127.0.0.1:{closed}")


def test_settings_are_sparks_own() -> None:
    assert masters.given_settings(["spark.executor.memory=4g", "spark.a.b=c=d"]) == {
        "spark.executor.memory": "4g",
        "spark.a.b": "c=d",
    }
    for wrong in ("executor.memory=4g", "spark.executor.memory", "=", "spark.=1"):
        with pytest.raises(InputError, match="is no setting of Spark"):
            masters.given_settings([wrong])


# Memory of verifying a recorded run: bytes per additional record, of Python's and numpy's
# allocations.


FEW, MANY, RECORDS = 200, 800, 10
MORE = (MANY - FEW) * RECORDS
"""Additional records in each log. Every cluster has one log that is decoded."""
HELD, WHILE_JUDGED = 400, 250
"""Bytes per record, of both clusters together: 356 and at most 146 were measured, of twice as many
readers and of larger polls."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("memory")
    few, many = (Shape(partitions=1, transactions=n, records=RECORDS) for n in (FEW, MANY))
    return write_run(root / "few", few), write_run(root / "many", many)


def read(root: Path) -> tuple[RunPlan, list[pa.RecordBatch]]:
    planned = plan(root)
    history = [batch for part in pieces.PARTS for batch in pieces.history_rows(root, part)]
    return planned, [*log_rows.batch_rows(planned.replicas), *history]


def assembled(root: Path) -> PartitionView:
    planned, batches = read(root)
    return view(planned, TOPIC, 0, batches)


def test_a_view_holds_columns(runs: tuple[Path, Path]) -> None:
    few, many = (read(run) for run in runs)
    grew = peak(lambda: view(many[0], TOPIC, 0, many[1])) - peak(
        lambda: view(few[0], TOPIC, 0, few[1])
    )
    assert grew / MORE < HELD


@pytest.mark.parametrize("check", REGISTRY.values(), ids=REGISTRY)
def test_no_kernel_needs_more_than_it_looks_at(
    runs: tuple[Path, Path], check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inconsistent_offset, "AT_ONCE", 1000)
    monkeypatch.setattr(logs, "_AT_ONCE", 1000)
    few, many = map(assembled, runs)
    assert (
        peak(lambda: examine(check, many)) - peak(lambda: examine(check, few))
    ) / MORE < WHILE_JUDGED


@pytest.mark.parametrize("part", pieces.PARTS)
def test_a_history_is_read_row_by_row(
    runs: tuple[Path, Path], part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_ROWS_AT_ONCE", 64)

    def read(run: Path) -> list[int]:
        return [len(batch) for batch in pieces.history_rows(run, part)]

    few, many = (peak(partial(read, run)) for run in runs)
    assert many < 1.5 * few + 64 * (MANY - FEW)

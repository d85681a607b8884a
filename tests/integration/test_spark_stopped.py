"""A process of Spark that somebody stopped is named and not waited for without end."""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from linkflap.harness.model.verdict import Verdict
from linkflap.harness.model.wait import until
from linkflap.spark_verify.spark import session
from linkflap.spark_verify.verify import verify
from tests.faithful.spec import spec
from tests.faithful.stories import story

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def test_a_stopped_jvm_is_named_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(session, "STOPPED_WITHIN", 3.0)
    run = story(spec(8)).write(tmp_path / "run")
    session.close()
    session.session()
    jvm = session._jvm
    assert jvm is not None
    os.kill(jvm.pid, signal.SIGSTOP)
    try:
        with caplog.at_level(logging.WARNING, logger="linkflap"):
            (judgement,) = verify([run])
        assert judgement.verdict is Verdict.UNKNOWN
        assert f"process {jvm.pid} was stopped for 3 s" in str(judgement.judged.checks)
        assert f"kill -CONT {jvm.pid}" in caplog.text
        assert not psutil.pid_exists(jvm.pid)
    finally:
        session.close()


def test_a_jvm_that_goes_on_in_time_gives_the_verdict(tmp_path: Path) -> None:
    run = story(spec(8)).write(tmp_path / "run")
    session.close()
    session.session()
    jvm = session._jvm
    assert jvm is not None
    process = psutil.Process(jvm.pid)
    os.kill(jvm.pid, signal.SIGSTOP)
    until(lambda: process.status() == psutil.STATUS_STOPPED, within=10, what="the JVM to stop")
    threading.Timer(3, os.kill, (jvm.pid, signal.SIGCONT)).start()
    try:
        (judgement,) = verify([run])
        assert judgement.verdict is Verdict.VALID
    finally:
        session.close()

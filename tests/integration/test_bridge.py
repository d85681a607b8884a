"""The bridge to a JVM, once that JVM is gone."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from linkflap.harness.jvm.bridge import Bridge
from linkflap.harness.machine.java import java_for
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.runtimes.distribution.kafka import kafka

pytestmark = pytest.mark.integration


def test_objects_that_outlive_their_jvm_are_collected_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = Bridge(java_for(DEFAULT_KAFKA), kafka(DEFAULT_KAFKA).classpath, tmp_path)
    held = bridge.java.java.util.ArrayList()
    bridge.close()
    del held
    gc.collect()
    assert not caplog.records

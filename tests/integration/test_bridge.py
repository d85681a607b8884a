"""The bridge to a JVM: which callers get a result, and what is left once that JVM is gone."""

from __future__ import annotations

import gc
import socket
from pathlib import Path

import psutil
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from linkflap.harness.jvm.bridge import Bridge
from linkflap.harness.machine.java import java_for
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.runtimes.distribution.kafka import kafka


def test_objects_that_outlive_their_jvm_are_collected_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bridge = Bridge(java_for(DEFAULT_KAFKA), kafka(DEFAULT_KAFKA).classpath, tmp_path)
    held = bridge.java.java.util.ArrayList()
    bridge.close()
    del held
    gc.collect()
    assert not caplog.records


@pytest.mark.nightly
def test_a_jvm_answers_on_loopback_to_who_has_its_token_and_dies_with_its_owner(
    tmp_path: Path,
) -> None:
    bridge = Bridge(java_for(DEFAULT_KAFKA), "", tmp_path)
    parameters = bridge.gateway.gateway_parameters
    assert len(parameters.auth_token) >= 32
    assert parameters.auth_token not in (tmp_path / "java-clients.log").read_text()
    listening = [
        c
        for c in psutil.Process(bridge.child.pid).net_connections()
        if c.status == psutil.CONN_LISTEN
    ]
    assert {c.laddr.ip.removeprefix("::ffff:") for c in listening} == {"127.0.0.1"}
    for token in (None, "x" * len(parameters.auth_token)):
        stranger = JavaGateway(
            gateway_parameters=GatewayParameters(port=parameters.port, auth_token=token)
        )
        with pytest.raises(Py4JError):
            stranger.jvm.java.lang.System.nanoTime()
    assert bridge.java.java.lang.System.nanoTime()
    bridge.close()
    with pytest.raises(OSError, match=r"refused"):
        socket.create_connection(("127.0.0.1", parameters.port), timeout=5)

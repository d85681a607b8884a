"""Where Spark runs: which masters are valid, which settings Spark gets, and which a user may
set."""

from __future__ import annotations

import socket
import sys

import pytest

from linkflap.harness.model.errors import InputError, SetupError
from linkflap.spark_verify.spark import masters


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


def test_of_several_masters_one_that_answers_is_enough() -> None:
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

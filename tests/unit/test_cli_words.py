"""What a command refuses before it does anything; with --json its errors are documents too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from linkflap.harness.cli.folders import check_junit
from linkflap.harness.cli.log_options import logs_request
from linkflap.harness.model.errors import InputError
from linkflap.spark_verify.spark import masters
from linkflap.topologies import parse


def ended(*words: str | bytes, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "linkflap", *words]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


def test_an_error_is_a_json_document_with_json(tmp_path: Path) -> None:
    done = ended("run", "link-flop", "--json", cwd=tmp_path)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["exit_code"], answer["verdict"]) == (254, 254, None)
    assert done.stderr == f"linkflap: {answer['error']}\n"
    assert "link-flop" in answer["error"]


def test_without_json_nothing_is_printed_beside_the_sentence(tmp_path: Path) -> None:
    assert ended("run", "link-flop", cwd=tmp_path).stdout == ""


def test_a_name_that_is_not_utf_8_is_refused_in_a_sentence(tmp_path: Path) -> None:
    done = ended("verify", b"runs-\xff", "--json", cwd=tmp_path)
    assert done.returncode == 254
    assert done.stderr == "linkflap: b'runs-\\xff' is not UTF-8; give it a name that is\n"
    assert json.loads(done.stdout)["exit_code"] == 254


def test_a_working_directory_that_is_not_utf_8_is_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    done = ended("list", cwd=Path(os.fsdecode(folder)))
    assert done.returncode == 254
    assert "\\xff' is not UTF-8; give it a name that is" in done.stderr


@pytest.mark.parametrize("path", ["/proc/x.xml", "/proc/self/x/y.xml", "/dev/null/x.xml", "."])
def test_a_junit_file_that_cannot_be_written_is_refused_before_the_run(path: str) -> None:
    with pytest.raises(InputError, match="--junit"):
        check_junit(Path(path))


def test_asking_whether_a_junit_file_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    check_junit(tmp_path / "x.xml")
    assert not list(tmp_path.iterdir())
    (tmp_path / "old.xml").write_text("<old/>")
    check_junit(tmp_path / "old.xml")
    assert (tmp_path / "old.xml").read_text() == "<old/>"


def test_the_same_link_twice_is_refused() -> None:
    with pytest.raises(InputError, match="--link A->B is given twice; give it once"):
        logs_request(
            logs=["A=x", "B=y"], bootstrap=[], properties=[], rate=None,
            links=["A->B", "B->A", "A->B"], promotions=[],
            topics=".*", preset="exact", settings=[], producer_ids=None, leader_epochs=None,
        )  # fmt: skip
    with pytest.raises(InputError, match="the link A->B is there twice"):
        parse("A->B, A->B")


@pytest.mark.parametrize("value", ["banana", "", "4", "4gb", "-1g", "0g", "1.5g"])
@pytest.mark.parametrize("name", ["spark.driver.memory", "spark.executor.memory"])
def test_an_invalid_amount_of_memory_is_refused_with_an_example(name: str, value: str) -> None:
    with pytest.raises(InputError, match=f"is no amount of memory; write for example {name}=4g"):
        masters.given_settings([f"{name}={value}"])

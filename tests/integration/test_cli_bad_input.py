"""Wrong input of a user, and machines that lack something: one sentence that names the thing and
how to fix it, the right exit code, and nothing left behind. Through the real command line."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from linkflap.cli import commands
from linkflap.harness.model import errors
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.rundir import RunReader
from tests.command_line import environment, linkflap, ran, unprivileged
from tests.synthetic import write_run
from tests.waiting import eventually

RUN = "run baseline --no-verify --out run"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working directory, as a user's."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "taken").mkdir()
    (folder / "file").write_text("")
    return folder


def made(work: Path) -> list[Path]:
    """Everything in a folder, except files that the package phantom-types creates if hypothesis is
    installed."""
    return sorted(path for path in work.rglob("*") if ".hypothesis" not in path.parts)


def assert_one_sentence(text: str, says: str) -> None:
    sentences = [
        line
        for line in text.splitlines()
        if not re.match(r" +\d+\.\d s  |.* with seed \d+; run directory ", line)
    ]
    assert len(sentences) == 1, text
    assert sentences[0].startswith("linkflap: ")
    assert re.search(says, sentences[0]), sentences[0]


def fails(work: Path, env: dict[str, str], code: int, says: str) -> str:
    """Exactly one sentence, and no new files; what standard error has beside it."""
    before = made(work)
    done = linkflap(RUN, env=env, cwd=work)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert_one_sentence(done.stderr, says)
    assert made(work) == before
    # The watchdog outlives the command by a moment: it takes the last entry away, within the 30 s
    # that are promised.
    ledger = Path(env["LINKFLAP_RUNTIME_DIR"])
    eventually(
        "the ledger to be empty",
        lambda: not list(ledger.glob("*.json")),
        state=lambda: list(ledger.glob("*.json")),
    )
    return done.stderr


@pytest.mark.parametrize(
    ("says", "arguments"),
    [
        ("no scenario 'link-flop' .did you mean 'link-flap'.*; known: link-flap", "run link-flop"),
        ("No such command 'rum'", "rum"),
        ("No such option.*--topologie", "run baseline --topologie A->B"),
        ("Missing argument", "run"),
        ("stands alone", "run baseline --topology A,B->C"),
        ("link-flap needs a link, and topology A has none", "run link-flap --topology A"),
        ("mirror-crash needs a link, and topology A has none", "run mirror-crash --topology A"),
        ("mm2 copies over a link", "run baseline --topology A --mirror mm2"),
        ("no mirror that could have delivery", "run baseline --topology A --set delivery=x"),
        ("mirror none is of one cluster alone", "run baseline --mirror none"),
        (
            "no fault of mirror-kill can be played on A",
            "suite smoke --topologies A --faults mirror-kill",
        ),
        (
            "no mirror 'mm3' .did you mean 'mm2'.*; known: cluster-mirroring, command, mm2",
            "run baseline --mirror mm3",
        ),
        ("there is no mirror ''; known:", "run baseline --mirror ''"),
        (
            "'mirrormaker2' is not one of .* .did you mean 'mm2'",
            "verify --logs A=. --mirror mirrormaker2",
        ),
        (
            "--reach 'rebalancin': no run of this suite can reach .* .did you mean 'rebalancing'",
            "suite smoke --reach rebalancin",
        ),
        ("has no option 'speed'; it has delivery", "run baseline --mirror mm2 --set speed=9"),
        ("there is no runtime 'podman'; known: process", "run baseline --runtime podman"),
        ("'--seed'.*-1 is not in the range", "run baseline --seed -1"),
        ("--duration 'long' is not a time", "run baseline --duration long"),
        ("--duration nan is out of range", "run baseline --duration nan"),
        ("taken exists already", "run baseline --out taken"),
        ("there is no folder .*/missing; make it", "run baseline --out missing/run"),
        ("there is no folder .*/file; make it", "run baseline --out file/run"),
        (
            "run directory /proc/run cannot be made|the folder /proc cannot be written",
            "run baseline --out /proc/run",
        ),
        ("--junit missing/x.xml: there is no folder", "run baseline --junit missing/x.xml"),
        ("did you mean 'java'[?]", "run baseline --clients jave"),
        ("nowhere is not a run directory", "verify nowhere"),
    ],
)
def test_wrong_input_is_one_sentence_and_leaves_nothing(
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    says: str,
    arguments: str,
) -> None:
    """A row for each option; the parsers' own tests have their sentences. In this process, which
    says the same: a new one for each row would import everything again.
    Its ledger has what other tests of this worker run meanwhile: `fails` looks at one of its
    own."""
    monkeypatch.chdir(work)
    monkeypatch.setattr("sys.argv", ["linkflap", *shlex.split(arguments)])
    before = made(work)
    assert commands.exit_code(debug=False) == errors.WRONG_INPUT
    out, err = capfd.readouterr()
    assert out == ""
    assert_one_sentence(err, says)
    assert made(work) == before


@pytest.mark.parametrize(
    ("ports", "code", "says"),
    [("many", 254, "LINKFLAP_PORTS"), ("28100-28104", 255, "28100.*28104.*LINKFLAP_PORTS")],
)
def test_ports_that_are_wrong_or_too_few_are_refused(
    work: Path, tmp_path: Path, ports: str, code: int, says: str
) -> None:
    fails(work, environment(tmp_path / "ledger", LINKFLAP_PORTS=ports), code, says)


def bare(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty cache and no programs, in which no registry is reachable."""
    away = dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), "http://127.0.0.1:9"
    )
    env = environment(
        tmp_path / "ledger",
        LINKFLAP_CACHE=str(tmp_path / "cache"),
        PATH=str(tmp_path),
        NO_PROXY="",
        no_proxy="",
        **away,
    )
    env.pop("JAVA_HOME", None)
    return env


def test_first_use_says_what_it_fetches_and_that_no_registry_was_reached(
    work: Path, tmp_path: Path
) -> None:
    """`unit/test_distribution.py` has the other things that a machine can lack."""
    says = (
        rf"the jars of Kafka {DEFAULT_KAFKA} could not be fetched with jgo \(.*\); check the"
        r" network"
    )
    said = fails(work, bare(tmp_path), 255, says)
    assert re.search(r"\d s  note  first use: fetching the \d+ jars of Kafka [\d.]+ with jgo", said)


# Folders that are no run directory, or have no readable run.json: wrong input.


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("linkflap")
    return ran([program, *words])


@pytest.mark.parametrize(
    "content", [None, b"", b"{", b"\xff\xfe", b'{"format": 1}', b'{"format": 99}', b"[]"]
)
def test_without_a_readable_run_json_it_is_wrong_input(
    tmp_path: Path, content: bytes | None
) -> None:
    path = write_run(tmp_path / "run") / "run.json"
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"run\.json|format") as raised:
        RunReader(path.parent)
    assert "\n" not in str(raised.value)


@pytest.mark.spark
def test_the_command_says_in_one_sentence_that_it_is_no_run(tmp_path: Path) -> None:
    done = command("verify", tmp_path, "--json")
    assert done.returncode == errors.WRONG_INPUT
    assert done.stderr.count("\n") == 1
    assert "run.json" in done.stderr
    document = json.loads(done.stdout)
    assert (document["verdict"], document["exit_code"]) == (None, errors.WRONG_INPUT)
    assert document["error"] in done.stderr


# `linkflap verify` with several directories: each is judged, whatever the others are, also if
# it is read-only.


@pytest.mark.spark
def test_one_bad_directory_spoils_no_other(tmp_path: Path) -> None:
    good, bad = write_run(tmp_path / "good"), tmp_path / "bad"
    bad.mkdir()
    (bad / "run.json").write_text('{"format": 1, "status": "nobody knows"}')
    for path in (good, *good.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)  # as on a read-only file system
    command = f"-m linkflap verify --json {bad} {good} --out {tmp_path / 'out'}"
    done = ran([*unprivileged(), sys.executable, *command.split()])
    assert done.returncode == 1, done.stderr  # `good` is invalid, which outweighs wrong input
    assert json.loads(done.stdout)["run"] == str(good)
    assert f"{bad}/run.json cannot be read" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "examined.parquet", "findings.parquet", "report.html", "verdict.json",
    ]  # fmt: skip
    assert not (good / "verdict.json").exists()

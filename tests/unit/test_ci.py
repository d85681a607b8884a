"""The repository's own tools: .ci/run, skeletons of `python -m tests.new`, the choice of cells."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

from linkflap.chaos.scenarios import SCENARIOS
from linkflap.spark_verify.checks.base import Check, Examined
from tests import new
from tests.cells import CLIENTS, SECURITIES, pairwise, topology
from tests.command_line import ran
from tests.faithful.mutations.base import CATALOGUE
from tests.unit.checks.histories import Log, view

ENGINE = Path(__file__).parents[2] / ".ci" / "engine"
TOOLS = ("bash", "cat", "kill", "ln", "mktemp", "rm", "setsid", "sleep", "tail", "timeout")
SCRIPT = (
    f'set -euo pipefail; source "{ENGINE}"; trap end_engine EXIT; begin_engine; echo'
    ' "${LINKFLAP_NO_DOCKER:-an engine}"'
)


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A PATH with few programs: no engine answers, and the user appears to be root."""
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, tool
        (tmp_path / tool).symlink_to(found)
    put(tmp_path, "python3", "exit 1")
    put(tmp_path, "id", "echo 0")
    return tmp_path


def put(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.unlink(missing_ok=True)
    path.write_text(f"#!{shutil.which('bash')}\n{script}\n")
    path.chmod(0o755)


def begun(machine: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DOCKER_HOST", "LINKFLAP_NO_DOCKER")
    }
    env |= {"PATH": str(machine), "TMPDIR": str(machine), **environment}
    return ran(["bash", "-c", SCRIPT], within=120, env=env)


@pytest.mark.parametrize(
    ("program", "prints", "host", "reason"),
    [
        ("", "", "tcp://127.0.0.1:1", "nothing answers at DOCKER_HOST=tcp://127.0.0.1:1"),
        ("id", "echo 1000", "", "only root can start one"),
        ("", "", "", "there is no dockerd and no apt-get"),
        (
            "apt-get",
            "echo 'E: Unable to locate package docker.io'; exit 100",
            "",
            "apt-get could not install docker.io (E: Unable to locate package docker.io)",
        ),
        (
            "dockerd",
            "echo 'failed to start daemon: no cgroups'; exit 1",
            "",
            "dockerd does not start here (failed to start daemon: no cgroups)",
        ),
    ],
)
def test_machine_without_an_engine_names_the_reason_and_skips_docker(
    machine: Path, program: str, prints: str, host: str, reason: str
) -> None:
    if program:
        put(machine, program, prints)
    done = begun(machine, **({"DOCKER_HOST": host} if host else {}))
    assert done.returncode == 0, done.stderr
    (loud,) = [line for line in done.stderr.splitlines() if line.startswith("##### NO DOCKER: ")]
    assert reason in loud
    assert "the tests with docker are SKIPPED" in loud
    assert reason in done.stdout


BROWSER = Path(__file__).parents[2] / ".ci" / "browser"
BROWSER_COMMAND = f'set -euo pipefail; source "{BROWSER}"; install_browser'


def installed(bare_machine: Path) -> subprocess.CompletedProcess[str]:
    env = {
        **os.environ,
        "PATH": str(bare_machine),
        "TMPDIR": str(bare_machine),
    }
    return ran(["/bin/bash", "-c", BROWSER_COMMAND], within=120, env=env)


@pytest.fixture
def bare_machine(tmp_path: Path) -> Path:
    """A PATH with only what the script itself needs."""
    put(tmp_path, "id", "echo 0")
    put(tmp_path, "timeout", 'shift; exec "$@"')
    put(tmp_path, "mktemp", f"echo {tmp_path}/log")
    put(tmp_path, "tail", "echo the last line")
    put(tmp_path, "rm", "exit 0")
    return tmp_path


def test_an_installed_browser_is_used(bare_machine: Path) -> None:
    put(bare_machine, "chromium", "exit 0")
    put(bare_machine, "apt-get", "exit 1")
    done = installed(bare_machine)
    assert (done.returncode, done.stderr) == (0, "")


def test_missing_chromium_is_installed(bare_machine: Path) -> None:
    put(bare_machine, "apt-get", f'echo "$@" >> {bare_machine}/asked')
    done = installed(bare_machine)
    assert (done.returncode, done.stderr) == (0, "installing Chromium\n")
    assert "install chromium" in (bare_machine / "asked").read_text()


@pytest.mark.parametrize(
    ("lacks", "reason"),
    [
        ("nothing to install it with", "there is no chromium and no apt-get"),
        ("somebody who may not", "only root can install it"),
        ("it cannot be fetched", "apt-get could not install chromium (the last line)"),
    ],
)
def test_without_one_there_is_a_loud_line(bare_machine: Path, lacks: str, reason: str) -> None:
    if lacks != "nothing to install it with":
        put(bare_machine, "apt-get", "exit 100")
    if lacks == "somebody who may not":
        put(bare_machine, "id", "echo 1000")
    done = installed(bare_machine)
    assert done.returncode == 0
    (loud,) = [line for line in done.stderr.splitlines() if line.startswith("##### NO BROWSER: ")]
    assert reason in loud
    assert "the tests of the report will FAIL" in loud


# The skeletons of each kind import, pass ruff, and fail only where their author has to write
# something.


NAMES: Final = {
    "check": "stale-copy",
    "fault": "broker-blink",
    "mirror": "brand-new",
    "workload": "bursts",
    "scenario": "link-storm",
    "case": "KAFKA-99999",
}
"""A name of each kind that is not taken."""
SHORT: Final = dict.fromkeys(NAMES, "it")
"""A short name: the formatter would join a registry line that is wrapped without need."""
COPIED: Final = ("chaos", "docs", "harness", "linkflap", "spark_verify", "tests", "topologies")
COMPLAIN: Final = {
    "check": "unit/checks/test_checks.py",
    "fault": "contract/test_faults.py",
    "mirror": "unit/test_brand_new.py",
    "workload": "unit/test_bursts.py",
    "scenario": "unit/test_topologies.py",
    "case": "unit/test_cases.py",
}
"""A test of each kind that fails until its skeleton is filled in: of the registry, or the
skeleton's own."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folders and registries that are written to."""
    for skeleton in new.KINDS.values():
        for path in (*skeleton.files, *(registry.file for registry in skeleton.registries)):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        for registry in skeleton.registries:
            shutil.copy(new.ROOT / registry.file, tmp_path / registry.file)
    return tmp_path


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"skeleton_{path.stem}", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_skeletons_of_a_check_are_one_that_finds_nothing_yet(root: Path) -> None:
    before = dict(CATALOGUE)
    check, histories, mutation = (
        loaded(path) for path in new.write("check", "stale-copy", root)[:-1]
    )
    try:
        seen = view([Log("A").data(1, 2), Log("B").data(1, 2)])
        assert isinstance(check.CHECK, Check)
        assert [f.count for f in check.CHECK.kernel(seen) if isinstance(f, Examined)] == [2, 2]
        assert (histories.NAME, set(histories.REJECTS)) == (
            "stale-copy",
            {kind.name for kind in check.CHECK.anomalies},
        )
        assert set(CATALOGUE) - set(before) == {"stale-copy-broken"}
        assert mutation.stale_copy_broken.__doc__
    finally:
        CATALOGUE.pop("stale-copy-broken", None)


def test_every_kind_is_complained_about_in_a_copy_of_the_tree_until_it_is_filled_in(
    tmp_path: Path,
) -> None:
    assert NAMES.keys() == COMPLAIN.keys() == new.KINDS.keys()
    for folder in COPIED:  # with what Python has compiled
        shutil.copytree(new.ROOT / folder, tmp_path / folder, symlinks=True)
    shutil.copy(new.ROOT / "pyproject.toml", tmp_path)
    for kind, name in NAMES.items():
        new.write(kind, name, tmp_path)
    words = " or ".join(
        sorted({*NAMES.values(), *(new.named("new_name", name) for name in NAMES.values())})
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", words]
    done = ran(
        [*command, *sorted(f"tests/{path}" for path in COMPLAIN.values())],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
    )
    failed = re.findall(r"^FAILED tests/(\S+?)::(.*)$", done.stdout, re.MULTILINE)
    silent = {kind for kind, path in COMPLAIN.items() if path not in {where for where, _ in failed}}
    assert silent == set(), done.stdout + done.stderr
    assert "error" not in done.stdout.splitlines()[-1], done.stdout


@pytest.mark.parametrize("command", [["check"], ["format", "--check"]], ids=" ".join)
@pytest.mark.parametrize("kind", new.KINDS)
def test_the_skeletons_have_the_style_of_the_rest(
    root: Path, kind: str, command: list[str]
) -> None:
    for path in (*new.write(kind, NAMES[kind], root), *new.write(kind, SHORT[kind], root)):
        stdin = ["--stdin-filename", str(path.relative_to(root)), "-"]
        done = ran(
            [sys.executable, "-m", "ruff", *command, *stdin], cwd=new.ROOT, input=path.read_text()
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("kind", new.KINDS)
def test_a_name_that_cannot_be_is_refused(root: Path, kind: str) -> None:
    for name in ("1st", "two words", "", "-"):
        with pytest.raises(
            ValueError,
            match=f"cannot be the name of a {kind}; give one such as {new.KINDS[kind].example}",
        ):
            new.write(kind, name, root)


@pytest.mark.parametrize("kind", new.KINDS)
def test_skeleton_never_overwrites_a_file(root: Path, kind: str) -> None:
    new.write(kind, NAMES[kind], root)
    taken = r"\.(py|toml) exists already; give another name, or remove it"
    with pytest.raises(ValueError, match=taken):
        new.write(kind, NAMES[kind], root)


# The pairwise choice: every pair occurs, with fewer cells than all combinations.


@pytest.mark.parametrize(
    ("factors", "most"),
    [
        ((tuple(SCENARIOS), CLIENTS, SECURITIES), len(SCENARIOS) * 2),
        ((("a", "b", "c"), ("d", "e", "f"), ("g", "h", "i"), ("j", "k", "l")), 12),
        ((("a", "b"), ("a", "b"), ("a", "b")), 4),
    ],
)
def test_all_pairs_occur_in_few_combinations(
    factors: tuple[tuple[str, ...], ...], most: int
) -> None:
    rows = pairwise(*factors)
    for (i, one), (j, other) in itertools.combinations(enumerate(factors), 2):
        assert {(row[i], row[j]) for row in rows} == set(itertools.product(one, other))
    assert len(rows) == len(set(rows)) <= most
    assert set(rows) <= set(itertools.product(*factors))


def test_pairwise_is_deterministic_and_empty_without_factors() -> None:
    assert pairwise(tuple(SCENARIOS), CLIENTS, SECURITIES) == pairwise(
        tuple(SCENARIOS), CLIENTS, SECURITIES
    )
    assert pairwise((), ("a", "b")) == []


def test_a_cell_secures_every_cluster_of_its_scenario() -> None:
    assert topology("chain-flap", "tls+scram") == "A{tls+scram}->B{tls+scram}->C{tls+scram}"
    assert topology("broker-loss", "") == "A:3->B:3"
    assert topology("relay", "tls+scram") == "A@4.1.2{tls+scram}->B@4.1.2{tls+scram}"

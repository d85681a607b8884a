"""Without the packages of the docker runtime (`linkflap[docker]`) everything else works, and what
needs them names what to install."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from linkflap.harness.machine import docker_package

_ROOT = Path(__file__).resolve().parents[2]
_FIX = "pip install 'linkflap[docker]'"
_WITHOUT = """
import sys
for name in ("docker", "testcontainers", "pandas"):
    sys.modules[name] = None
from linkflap.cli import main
main()
"""


_THEIRS = """
import sys
import docker as theirs
from linkflap.harness import runtimes
from linkflap.harness.machine import docker_package
from linkflap.topologies import parse

for _ in range(2):
    runtimes.check("docker", parse("A->B"))
    with docker_package.importable():
        import docker as installed
        from docker.errors import NotFound
    import docker
    assert docker is theirs and docker.theirs, docker
from linkflap.harness.runtimes.docker import container
assert installed.from_env and container.NotFound is NotFound
assert [name for name in sys.modules if name.startswith(("docker.", "testcontainers"))] == []
assert not any("site-packages" in path for path in sys.path[:1])
"""


def without(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", _WITHOUT, *words]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize(
    "words", [["run", "baseline", "--dry-run", "--runtime", "docker"], ["images", "check"]]
)
def test_errors_without_them_name_what_to_install(words: list[str], tmp_path: Path) -> None:
    done = without(*words, cwd=tmp_path)
    said = (
        f"linkflap: the docker runtime needs the package docker, which is not installed: {_FIX}; "
        "--runtime process needs none\n"
    )
    assert (done.returncode, done.stderr) == (255, said)


def test_everything_else_works_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", str(tmp_path / "ledger"))
    assert (
        without("run", "baseline", "--dry-run", "--runtime", "process", cwd=tmp_path).returncode
        == 0
    )
    assert without("clean", cwd=tmp_path).returncode == 0
    done = without("doctor", cwd=tmp_path)
    assert "the package docker is not installed" in done.stdout
    assert "linkflap[docker]" in done.stdout
    assert "runtime docker: lacks docker" in done.stdout


def test_they_are_an_extra_and_the_demo_installs_neither_them_nor_what_tests_need() -> None:
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]
    names = {each.partition(">")[0].partition("<")[0].strip() for each in project["dependencies"]}
    assert not names & {"docker", "testcontainers", "pandas", "matplotlib"}
    assert {each.partition(">")[0] for each in project["optional-dependencies"]["docker"]} == {
        "docker",
        "testcontainers",
    }
    tox = (_ROOT / "tox.ini").read_text()
    demo = tox.partition("[testenv:demo]")[2].partition("\n[")[0]
    assert "\ndeps =\n" in demo
    assert "\nextras =\n" in demo


def test_a_folder_of_the_projects_own_called_docker_is_left_to_it(tmp_path: Path) -> None:
    pytest.importorskip("testcontainers")
    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "__init__.py").write_text("theirs = True\n")
    done = subprocess.run(
        [sys.executable, "-c", _THEIRS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_folder_called_docker_is_not_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_installed(name: str) -> None:
        raise PackageNotFoundError(name)

    (tmp_path / "docker").mkdir()
    (tmp_path / "docker" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(docker_package, "distribution", none_installed)
    assert docker_package.lacking() == "docker"
    with docker_package.importable():  # nothing to import instead
        assert str(tmp_path) == sys.path[0]

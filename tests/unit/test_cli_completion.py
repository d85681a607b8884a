"""Shell completion: scenarios, mirrors, options and their values; in bash itself, and as zsh and
fish request it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from linkflap.chaos.scenarios import SCENARIOS
from linkflap.cli.commands import linkflap

_RUN = 'import sys; sys.argv[0] = "linkflap"; from linkflap.cli import main; main()'


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """`linkflap` on the PATH, as in an installation."""
    path = tmp_path / "linkflap"
    path.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{_RUN}' \"$@\"\n")
    path.chmod(0o755)
    return path


def completed(shell: str, words: list[str], incomplete: str) -> list[str]:
    """The lines that the command prints for a shell's completion request."""
    asked = {
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words)),
        "_LINKFLAP_COMPLETE": f"{shell}_complete",
    }
    if shell == "fish":
        asked["COMP_CWORD"] = incomplete
    else:
        asked["COMP_WORDS"] += f" {incomplete}"
    return CliRunner().invoke(linkflap, prog_name="linkflap", env=asked).output.splitlines()


def in_bash(command: Path, *words: str, cwd: Path) -> list[str]:
    """Bash's completions of the last of these words."""
    listed = " ".join(f"'{word}'" for word in words)
    script = f"""
        source <(_LINKFLAP_COMPLETE=bash_source linkflap)
        compopt() {{ echo "compopt $*" >&2; }}
        COMP_WORDS=({listed}); COMP_CWORD={len(words) - 1}
        _linkflap_completion linkflap
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    env = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", script],
        env=env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "linkflap:" not in done.stderr
    return done.stdout.split()


def test_bash_completes_names_and_values_and_ends_well(command: Path, tmp_path: Path) -> None:
    assert in_bash(command, "linkflap", "run", "link-", cwd=tmp_path) == ["link-flap"]
    assert in_bash(command, "linkflap", "run", "link-flap", "--mir", cwd=tmp_path) == ["--mirror"]
    assert in_bash(
        command, "linkflap", "run", "link-flap", "--set", "delivery", "=", "ex", cwd=tmp_path
    ) == ["exactly-once"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_script_and_exit_code_0(shell: str, command: Path) -> None:
    env = {**os.environ, "_LINKFLAP_COMPLETE": f"{shell}_source"}
    done = subprocess.run(
        [command], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{shell}_complete" in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        (["linkflap", "run"], "producer-id", ["producer-id-collision"]),
        (["linkflap", "run"], "", list(SCENARIOS)),
        (["linkflap", "run", "baseline", "--mirror"], "m", ["mm2"]),
        (
            ["linkflap", "run", "baseline", "--mirror", "mm2", "--set"],
            "",
            ["delivery=", "isolation=", "groups=", "tasks="],
        ),
        (["linkflap", "run", "baseline", "--set"], "prod", ["producer_ids="]),
        (["linkflap", "run", "baseline", "--runtime"], "d", ["docker"]),
        (["linkflap", "run", "baseline", "--topology"], "round", ["round-trip"]),
        (["linkflap", "list"], "mir", ["mirrors"]),
    ],
)
def test_the_offered_completions(
    shell: str, words: list[str], incomplete: str, found: list[str]
) -> None:
    printed = completed(shell, words, incomplete)
    if shell == "zsh":  # three lines each: type, value, help
        assert printed[1::3] == found
    else:
        assert [
            line.partition(",")[2].partition("\t")[0]
            for line in printed
            if line.startswith("plain,")
        ] == found


@pytest.mark.parametrize(
    ("words", "incomplete", "found"),
    [
        (
            ["linkflap", "run", "x", "--set", "producer_ids"],
            "=",
            ["jump", "keep", "negate", "complement", "region", "reset"],
        ),
        (["linkflap", "run", "x", "--set", "isolation", "="], "read_u", ["read_uncommitted"]),
        (["linkflap", "run", "x", "--mirror", "="], "sh", ["shadow"]),
        (["linkflap", "run", "x"], "--mir", ["--mirror"]),
        (["linkflap", "run", "x", "--set", "bound", "=", "lso"], "--mir", ["--mirror"]),
        (
            ["linkflap", "run", "x", "--set", "bound", "=", "lso", "--set", "leader_epochs", "="],
            "k",
            ["keep"],
        ),
    ],
)
def test_words_that_bash_breaks_at_an_equals_sign(
    words: list[str], incomplete: str, found: list[str]
) -> None:
    assert [line.partition(",")[2] for line in completed("bash", words, incomplete)] == found


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize(
    ("incomplete", "found"),
    [
        ("--mirror=m", "--mirror=mm2"),
        ("--set=producer_ids=k", "--set=producer_ids=keep"),
        ("--mir", "--mirror"),
    ],
)
def test_zsh_and_fish_put_in_words(shell: str, incomplete: str, found: str) -> None:
    printed = completed(shell, ["linkflap", "run", "x"], incomplete)
    offered = (
        printed[1::3]
        if shell == "zsh"
        else [line.partition(",")[2].partition("\t")[0] for line in printed]
    )
    assert offered == [found]


def test_fish_itself_shows_help_with_commas_and_values_behind_an_equals_sign(
    command: Path, tmp_path: Path
) -> None:
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    script = (
        "_LINKFLAP_COMPLETE=fish_source linkflap | source; complete -C 'linkflap li'; complete -C "
        "'linkflap run x --mirror=m'"
    )
    env = {**os.environ, "PATH": f"{command.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["fish", "-c", script], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0].startswith("list\tLists scenarios, topologies")
    assert done.stdout.splitlines()[1] == "--mirror=mm2"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_the_script_of_zsh_is_one(command: Path) -> None:
    env = {**os.environ, "_LINKFLAP_COMPLETE": "zsh_source"}
    script = subprocess.run(
        [command], env=env, capture_output=True, text=True, timeout=300, check=True
    ).stdout
    assert script.count("nospace") == 4
    assert (
        subprocess.run(
            ["zsh", "-n"], input=script, text=True, capture_output=True, timeout=60, check=False
        ).stderr
        == ""
    )


def test_a_scenario_may_be_a_file() -> None:
    assert completed("bash", ["linkflap", "run"], "./mi") == ["file,./mi"]

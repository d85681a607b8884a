"""Runs the user's own programs: without a shell, each in a process group that is killed as one,
with its output in a file.

No program outlives this process (`harness.machine.children`, supervised). The values of variables
that the user gave to a program are secrets: they are in no event and no error, and they are
overwritten in the program's output file when it has exited.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from linkflap.harness.machine import children, untrusted_files
from linkflap.harness.model.errors import DeadlineExceeded, SetupError
from linkflap.harness.model.wait import until

HIDDEN: Final = "[hidden]"
SHORTEST_SECRET: Final = 4
"""The least length of a secret in characters. A shorter value (`1`, `no`) is no secret, and
removing it would make the output unreadable.
"""
_LONG: Final = 8
_DIES_WITHIN: Final = 10.0
_TAIL: Final = 15


def search_path() -> str:
    """PATH as the user's programs have it: `python3` is the interpreter that runs linkflap, with
    what is installed beside it."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def program(word: str, folder: Path) -> str | None:
    """The program that a command's first word means, as an absolute path; None where there is none
    that can be run."""
    found = (
        shutil.which(str(folder / word))
        if os.sep in word
        else shutil.which(word, path=search_path())
    )
    return str(Path(found).absolute()) if found else None


def reason_not_to_start(word: str, folder: Path) -> str | None:
    """Why a command with this first word cannot be started in `folder`; None if it can."""
    if not folder.is_dir():
        return f"there is no folder {folder}; make it, or correct folder"
    if program(word, folder) is None:
        return (
            f"there is no program {word!r} in {folder} or on PATH; correct the command, or folder"
        )
    return None


def redacted(text: str, secrets: Sequence[str]) -> str:
    """The text without these values."""
    for secret in sorted((s for s in secrets if len(s) >= SHORTEST_SECRET), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def holds(word: str, secret: str) -> bool:
    """Whether a word of a command line has this secret; a short one only as a value of its own
    (`--password=kafka`, not `kafka-1`)."""
    return secret in (word if len(secret) >= _LONG else re.split(r"[=:@,\s]", word))


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCommand:
    """A command that has ended: its exit status, negative for a signal, and what it printed."""

    status: int
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """How to start commands of one user's program: `folder` is where they run, `log` where they
    print.

    `secrets` are variables of the user's, `environment` those that linkflap gives.
    """

    name: str
    folder: Path
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)

    def start(self, words: Sequence[str], **more: str) -> children.Child:
        """Starts a long-running command; `more` are its own variables. Raises SetupError."""
        found = program(words[0], self.folder)
        if found is None:
            raise SetupError(
                f"cannot start {self.name}: there is no program {words[0]!r}; give its path, or "
                "install it"
            )
        self.log.parent.mkdir(parents=True, exist_ok=True)
        return children.spawn(
            [found, *words[1:]],
            name=self.name,
            folder=self.folder,
            output=self.log,
            environment={"PATH": search_path(), **self.secrets, **self.environment, **more},
            supervised=True,
        )

    def run(
        self, words: Sequence[str], *, what: str, within: float, **more: str
    ) -> FinishedCommand:
        """Runs a command and the processes that it starts to their end. After `within` seconds
        kills them and raises DeadlineExceeded.
        """
        before = self.log.stat().st_size if self.log.exists() else 0
        child = self.start(words, **more)
        try:
            until(
                lambda: child.end_group() is not None,
                within=within,
                what=f"{what} of {self.name} to end",
            )
        finally:
            child.kill()
            self.clean_log()
        with self.log.open("rb") as file:
            file.seek(before)
            return FinishedCommand(
                status=child.poll() or 0, output=file.read().decode(errors="replace")
            )

    def end(self, child: children.Child, *, within: float) -> bool:
        """Stops a command with SIGTERM, after `within` seconds with SIGKILL. Returns whether
        SIGTERM sufficed.
        """
        child.signal(signal.SIGTERM)
        child.signal(signal.SIGCONT)
        gently = True
        try:
            until(
                lambda: child.end_group() is not None,
                within=within,
                what=f"{self.name} to end after SIGTERM",
            )
        except DeadlineExceeded:
            gently = False
        self.kill(child)
        return gently

    def kill(self, child: children.Child) -> None:
        """SIGKILL of the entire process group; returns when nothing of it is left."""
        child.signal(signal.SIGKILL)
        until(
            lambda: child.end_group() is not None and not child.group(),
            within=_DIES_WITHIN,
            what=f"the processes of {self.name} to die",
            state=lambda: sorted(child.group()),
        )
        self.clean_log()

    def clean_log(self) -> None:
        """Overwrites the user's values in the output. Bytes keep their positions, because a running
        program appends to it."""
        for secret in self.secrets.values():
            if len(secret) >= SHORTEST_SECRET:
                _overwrite(self.log, secret.encode())

    def last_words(self) -> str:
        """The last lines of its output, for an error."""
        try:
            printed = "\n".join(untrusted_files.last_lines(self.log, _TAIL))
        except OSError as error:
            return f"(nothing printed: {error.strerror})"
        return redacted(printed, list(self.secrets.values())) or "(nothing printed)"


def _overwrite(path: Path, secret: bytes) -> None:
    """Every occurrence in a file by as many stars."""
    with contextlib.suppress(OSError), path.open("r+b") as file:
        content = file.read()
        at = content.find(secret)
        while at >= 0:
            file.seek(at)
            file.write(b"*" * len(secret))
            at = content.find(secret, at + len(secret))

"""Any user of the machine reaches the shadow's control port; only who can read its folder is
obeyed."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from linkflap.harness.mirrors.shadow import control, settings
from linkflap.harness.mirrors.shadow.shadow import Shadow
from tests.shadows import config


class _Shadow:
    """Stands in for the mirror behind the port, and counts its commands."""

    def __init__(self) -> None:
        self.failovers = 0
        self.journal = SimpleNamespace(notes=SimpleNamespace(phase="mirroring", topics={}))
        self.membership = SimpleNamespace(fenced=False, longest_silence=0.0)
        self.source = SimpleNamespace(lost=False)
        self.log = SimpleNamespace(held=0, steps=SimpleNamespace(at=""), partitions={})
        self.groups = SimpleNamespace(synced=True)

    def fail_over(self) -> None:
        self.failovers += 1


def sent(folder: Path, *lines: bytes, own: control.Verb | None = None) -> tuple[int, list[bytes]]:
    """How many failovers a shadow makes for these lines, and its answers; or for the harness's own
    command."""
    settings.write(config(), folder)
    shadow = _Shadow()
    port = socket.create_server(("127.0.0.1", 0))
    number = port.getsockname()[1]

    def stranger() -> list[bytes]:
        if own is not None:
            return [b"" if control.ask(number, own, folder=folder, within=5) is None else b"answer"]
        answers = []
        for line in lines:
            with socket.create_connection(("127.0.0.1", number), timeout=5) as connection:
                connection.sendall(line + b"\n")
                connection.shutdown(socket.SHUT_WR)
                answers.append(connection.recv(1000))
        return answers

    async def serve() -> list[bytes]:
        served = control.Control(cast("Shadow", shadow), port, settings.control_token(folder))
        await served.start()
        try:
            return await asyncio.to_thread(stranger)
        finally:
            served.close()

    answers = asyncio.run(serve())
    return shadow.failovers, answers


def test_the_harness_is_obeyed(tmp_path: Path) -> None:
    assert sent(tmp_path, own="fail-over") == (1, [b"answer"])
    assert sent(tmp_path, own="status") == (0, [b"answer"])


@pytest.mark.parametrize("token", [None, "", "x", "0" * 64, 1, ["a"], "\u00e9"])
def test_without_the_token_nothing_is_done_or_answered(tmp_path: Path, token: object) -> None:
    command = {"do": "fail-over"} | ({} if token is None else {"token": token})
    assert sent(tmp_path, json.dumps(command).encode()) == (0, [b""])


def test_other_lines_end_a_connection(tmp_path: Path) -> None:
    deep = b"[" * 30_000
    assert sent(tmp_path, b"", b"[]", b"{}", b"\xff", deep)[1] == [b""] * 5


def test_the_token_is_this_users_alone_and_stays(tmp_path: Path) -> None:
    settings.write(config(), tmp_path)
    path = tmp_path / settings.TOKEN
    token = settings.control_token(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(token) == 64
    assert token not in (tmp_path / settings.CONFIG).read_text()
    settings.write(config(), tmp_path)
    assert settings.control_token(tmp_path) == token

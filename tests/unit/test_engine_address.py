"""The address of the Docker engine, as every user of it sees it: local, on another machine, or one
that cannot be named."""

from __future__ import annotations

import pytest

from linkflap.harness.machine import engine_address
from linkflap.harness.model.errors import SetupError


@pytest.mark.parametrize(
    "host",
    ["unix:///run/docker.sock", "tcp://127.0.0.1:2375", "tcp://localhost:1", "tcp://[::1]:2375"],
)
def test_an_engine_of_this_machine_is_near(host: str) -> None:
    assert engine_address.not_near(host) is None


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (
            "tcp://engine.example:2375",
            "the Docker engine at tcp://engine.example:2375 is another machine's",
        ),
        (
            "ssh://me@engine.example",
            "the Docker engine at ssh://me@engine.example is another machine's",
        ),
        ("foo", "DOCKER_HOST is 'foo', which names no engine"),
        ("unix://", "DOCKER_HOST is 'unix://', which names no engine"),
        ("tcp://[::1:2375", "DOCKER_HOST is 'tcp://[::1:2375', which names no engine"),
        ("tcp://127.0.0.1:many", "DOCKER_HOST is 'tcp://127.0.0.1:many', which names no engine"),
        ("tcp://127.0.0.1:1", "no Docker engine answers"),
    ],
)
def test_an_unavailable_engine_is_an_error_of_one_sentence(
    host: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from linkflap.harness.runtimes.docker import engine

    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setattr(engine, "_clients", {})
    with pytest.raises(SetupError) as refused:
        engine.client()
    assert str(refused.value).startswith(said)

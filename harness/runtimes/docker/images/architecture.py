"""Checks that an image has the engine's architecture."""

from __future__ import annotations

from typing import Final

from linkflap.harness.model.errors import SetupError
from linkflap.harness.runtimes.docker import engine

_SAME: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def same(one: str, other: str) -> bool:
    """Whether two names mean the same architecture. An architecture that was not recorded matches
    any."""
    return not (one and other) or _SAME.get(one, one) == _SAME.get(other, other)


def check(image: str) -> None:
    """Raises SetupError for an image in the engine that has another architecture."""
    with engine.asked(f"look at image {image}", kind=SetupError):
        theirs = str(engine.client().images.get(image).attrs.get("Architecture", ""))
        ours = str(engine.client().info().get("Architecture", ""))
    if not same(theirs, ours):
        raise SetupError(
            f"image {image} is for {theirs} and the Docker engine is {ours}; name one that is for "
            f"{ours}"
        )

"""Reads and rewrites the bounds of replicas beside a capture."""

from __future__ import annotations

from pathlib import Path

import msgspec

from linkflap.harness.model.history import Bounds


def bounds_of(root: Path, moment: str) -> list[Bounds]:
    return msgspec.json.decode(
        (root / "captures" / moment / "bounds.json").read_bytes(), type=list[Bounds]
    )


def write_bounds(root: Path, moment: str, found: list[Bounds]) -> None:
    path = root / "captures" / moment / "bounds.json"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.encode(found))

"""manifest.json: the files when a run ended, and which of them are missing or have another size
now."""

from __future__ import annotations

from pathlib import Path

import msgspec

from linkflap.harness.rundir.values import Damage


def inventory(root: Path) -> dict[str, int]:
    """What manifest.json holds: path -> bytes, -1 for segments."""
    rows = {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*.jsonl")}
    bounds = {
        str(path.relative_to(root)): path.stat().st_size
        for path in root.glob("captures/*/bounds.json")
    }
    segments = {str(path.relative_to(root)): -1 for path in root.glob("captures/*/*/*/*/*.log")}
    return dict(sorted((rows | bounds | segments).items()))


def missing(root: Path) -> list[Damage]:
    """What the manifest promises and the directory does not have."""
    try:
        manifest = msgspec.json.decode((root / "manifest.json").read_bytes(), type=dict[str, int])
    except (OSError, msgspec.DecodeError) as error:
        return [Damage(path="manifest.json", reason=f"cannot be read: {error}")]
    return [damage for path, size in manifest.items() if (damage := _missing(root, path, size))]


def _missing(root: Path, path: str, size: int) -> Damage | None:
    try:
        found = (root / path).stat().st_size
    except OSError:
        return Damage(path=path, reason="missing: it was there when the run ended")
    if size not in (-1, found):
        return Damage(path=path, reason=f"has {found} bytes, had {size} when the run ended")
    return None

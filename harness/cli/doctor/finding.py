"""The result of one examination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One examined thing.

    `ok`: True if it is fine; None if it is installed on first use or only worth knowing; False if
    it stops the runtimes that need it. `fix`: how to fix it, empty if there is nothing to do.
    `needed_by`: a runtime, empty for all.
    """

    name: str
    ok: bool | None
    says: str
    fix: str = ""
    needed_by: str = ""

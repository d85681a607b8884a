"""The finding of one examination.

A finding is fine (True); installs itself on first use or is only worth knowing (None); or stops the
runtimes that need it (False).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing examined. `fix`: how to fix it, empty where there is nothing to do; `needed_by`: a
    runtime, empty for all."""

    name: str
    ok: bool | None
    says: str
    fix: str = ""
    needed_by: str = ""

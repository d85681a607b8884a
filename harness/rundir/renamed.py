"""Former names of kinds of anomalies, in files that older versions of linkflap wrote, and the
present names.

Everything that was stored goes through this converter: guarantees in run.json, verdicts, results of
suites and of cases.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

RENAMED: Final[Mapping[bytes, bytes]] = {
    b"skipped-by-cut": b"skipped-by-truncation",
    b"tail-not-cut": b"tail-not-truncated",
    b"cut-not-made": b"truncation-not-made",
}
_OLD: Final = re.compile(rb"(?<![\w-])(?:" + b"|".join(RENAMED) + rb")(?![\w-])")


def with_current_kinds(content: bytes) -> bytes:
    """A stored JSON document, or a line of one, with the present name of every kind of anomaly."""
    return _OLD.sub(lambda found: RENAMED[found[0]], content)

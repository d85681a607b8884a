"""Whether the package that makes certificates is installed; only `pip install 'linkflap[tls]'`
installs it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from linkflap.harness.model.errors import InputError

FIX: Final = "pip install 'linkflap[tls]'"
_PACKAGE: Final = "trustme"


def check() -> None:
    """Raises InputError when it is not installed."""
    if find_spec(_PACKAGE) is None:
        raise InputError(
            f"secured clusters need the package {_PACKAGE} for their certificates: {FIX}, or leave "
            "the braces out"
        )

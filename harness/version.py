"""The version of this linkflap, and the path of its source."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

try:
    VERSION = version("linkflap")
except PackageNotFoundError:  # a checkout that was never installed
    VERSION = "0+unknown"

INSTALLED: Final = Path(__file__).absolute().parents[2]
"""The folder that holds the package `linkflap`, for programs of linkflap's own that are started
from a fresh interpreter."""

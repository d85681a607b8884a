"""Which linkflap this is."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("linkflap")
except PackageNotFoundError:  # a checkout that was never installed
    VERSION = "0+unknown"

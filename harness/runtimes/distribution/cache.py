"""What is fetched or made once per user and shared by all runs: whole or not there at all.

The folder is the user's cache directory, or $LINKFLAP_CACHE.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock
from platformdirs import user_cache_path

from harness.model.errors import SetupError


def folder() -> Path:
    """The cache folder; made when missing. Raises SetupError when it cannot be written."""
    override = os.environ.get("LINKFLAP_CACHE")
    path = Path(override).absolute() if override else user_cache_path("linkflap")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the cache folder {path} cannot be made ({error.strerror}); set LINKFLAP_CACHE to a folder that can be written"
        ) from error
    return path


def once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache, filled by `make` if it is not there yet.

    `make` fills a folder beside it, which is renamed when it is complete; other processes wait. Whatever `make` raises
    leaves nothing behind.
    """
    final = folder() / name
    if final.is_dir():
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(final.parent / f".{final.name}.lock"):
        if not final.is_dir():
            # We hold the lock: whatever lies here was left by a process that was killed.
            for left in final.parent.glob(f".{final.name}.partial-*"):
                shutil.rmtree(left, ignore_errors=True)
            partial = Path(tempfile.mkdtemp(prefix=f".{final.name}.partial-", dir=final.parent))
            try:
                make(partial)
                partial.rename(final)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return final

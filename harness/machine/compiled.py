"""Functions compiled by numba, kept in linkflap's cache folder: the only module that imports numba.

By default numba keeps them beside the sources or in the user's home, and refuses to compile if it
can write neither: so for every user of a container whose site-packages are root's. If linkflap's
cache cannot be written either, each process compiles them again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., object])


def _kept() -> bool:
    """Whether there is a folder for them, which numba reads from the environment when it is
    imported. Spark's workers find it there."""
    if "NUMBA_CACHE_DIR" in os.environ:
        return True
    from linkflap.harness.machine import cache

    return cache.name_compiled()


_KEPT: Final = _kept()

import numba  # noqa: E402

_njit: Final = numba.njit(cache=_KEPT, nogil=True)


def compiled(function: _Function) -> _Function:
    """The function as machine code, without the interpreter's lock."""
    return cast(_Function, _njit(function))

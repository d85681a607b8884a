"""Every mutation, by what it breaks; importing this imports each module here, which fills the
catalogue."""

import importlib
import pkgutil

from tests.faithful.mutations.base import CATALOGUE, Mutation

for _found in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_found.name}")

__all__ = ["CATALOGUE", "Mutation"]

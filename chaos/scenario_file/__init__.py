"""Scenario files (TOML): a scenario that a user wrote, or a built-in one written out. Reading one
executes nothing.

schema   the typed model, of which docs/make.py makes the JSON Schema for editors; Scenario -> file
read     file -> Scenario; errors have the line and the nearest name
"""

from linkflap.chaos.scenario_file.read import LOADS_CLASSES, check_kafka, is_file, read
from linkflap.chaos.scenario_file.schema import KEYS, render, save

__all__ = [
    "KEYS",
    "LOADS_CLASSES",
    "check_kafka",
    "is_file",
    "read",
    "render",
    "save",
]

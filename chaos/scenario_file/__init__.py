"""Scenario files (TOML): a scenario that a user wrote, or a built-in one written out. Reading one
executes nothing.

schema   the typed model, and the JSON Schema for editors that is generated from it
reader   the position in a file: errors with the line and the nearest name
read     file -> Scenario
write    Scenario -> file
"""

from linkflap.chaos.scenario_file.read import LOADS_CLASSES, check_kafka, is_file, read
from linkflap.chaos.scenario_file.schema import KEYS, json_schema
from linkflap.chaos.scenario_file.write import render, save

__all__ = [
    "KEYS",
    "LOADS_CLASSES",
    "check_kafka",
    "is_file",
    "json_schema",
    "read",
    "render",
    "save",
]

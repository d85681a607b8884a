"""The JSON Schema of scenario files: `python docs/make_schema.py > docs/scenario.schema.json`."""

import sys

from linkflap.chaos.scenario_file import json_schema

if __name__ == "__main__":
    sys.stdout.write(json_schema())

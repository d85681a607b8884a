"""The JSON Schema of scenario files: `python docs/make_schema.py > docs/scenario.schema.json`.

It describes this checkout, also where another linkflap is installed.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from linkflap.chaos.scenario_file import json_schema

if __name__ == "__main__":
    sys.stdout.write(json_schema())

"""The checks of a run itself, by name, and their guarantees (`spark_verify.verdict.run_checks`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

NAMES: Final = ("recording", "fault-bite")
GUARANTEES: Final[Mapping[str, str]] = {
    "recording": (
        "The run's record is complete, its readers read to the end, and it did at least what its "
        "scenario asks for."
    ),
    "fault-bite": (
        "Every scheduled fault was seen to have an effect within its window, and to be healed."
    ),
}

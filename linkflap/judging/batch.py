"""Judges run directories in batches, where no directory spoils another's verdict; used by suites
and the verifier service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linkflap.harness.model.errors import LinkflapError
from linkflap.spark_verify.verdict.judge import Judgement
from linkflap.spark_verify.verify import verify


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """What came out for one run directory: its judgement, or why there is none."""

    folder: Path
    judgement: Judgement | None = None
    error: LinkflapError | None = None


def judged(
    folders: Sequence[Path], verify: Callable[[Sequence[Path]], Sequence[Any]] = verify
) -> list[BatchOutcome]:
    """The outcomes of a batch; where it cannot be judged as one, of each alone, so that no
    directory spoils another's."""
    try:
        return [BatchOutcome(folder=each.folder, judgement=each) for each in verify(folders)]
    except LinkflapError as error:
        if len(folders) == 1:
            return [BatchOutcome(folder=folders[0], error=error)]
    return [outcome for folder in folders for outcome in judged([folder], verify)]

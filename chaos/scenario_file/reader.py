"""The reader's position in a scenario file; raises errors with file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from linkflap.chaos.scenario_file import value_lines
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.spelling import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    path: Path
    where: value_lines.ValueLines

    def fail(self, at: value_lines.Path, sentence: str) -> NoReturn:
        raise InputError(f"{self.path}, line {self.where.line(at)}: {sentence}")

    def known(self, at: value_lines.Path, what: str, name: str, known: Iterable[str]) -> None:
        """Raises InputError for a name that is not in a registry."""
        names = sorted(known)
        if name not in names:
            self.fail(
                at,
                f"there is no {what} {name!r}{nearest(name, names)}; known: {', '.join(names)}",
            )

    def placed(self, at: value_lines.Path, check: Callable[[], object]) -> None:
        """Runs a check that does not know the file, and adds the file and line to its error."""
        try:
            check()
        except InputError as error:
            self.fail(at, str(error))

"""The description of an option, for every list of options: its values, its default, and what it
does."""

from __future__ import annotations

from dataclasses import dataclass

from linkflap.harness.model.scenario import Option


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionAbout:
    """An option. `choices` are all its values; if empty, `takes` describes the legal values in
    words."""

    default: Option
    about: str
    choices: tuple[str, ...] = ()
    takes: str = ""

    @property
    def values(self) -> str:
        """Allowed values, on one line."""
        return " | ".join(self.choices) or self.takes

"""The description of an option, for every list of options: its values, its default, and what it
does; and what is wrong with a pattern that a user gave for a Java program."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.scenario import Option
from linkflap.harness.model.texts import nearest

_LARGEST: Final = 1e15
"""No option is larger; every whole number up to it is exact as a float."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionAbout:
    """An option. `choices` are all its values; if empty, `takes` describes the legal values in
    words. A number is from `low` to `high`, and whole if its default is."""

    default: Option
    about: str
    choices: tuple[str, ...] = ()
    takes: str = ""
    low: float = 0.0
    high: float = math.inf

    @classmethod
    def one_of(cls, *choices: str, about: str) -> OptionAbout:
        """An option with these values; the first is the default."""
        return cls(default=choices[0], choices=choices, about=about)

    @property
    def values(self) -> str:
        """Allowed values, on one line."""
        return " | ".join(self.choices) or self.takes or self.legal

    def checked(self, value: Option) -> Option:
        """A value that a user gave, with the type of the default. Raises ValueError, which says how
        to fix it."""
        if not self.is_legal(value):
            raise ValueError(f"give {self.legal}")
        return value if isinstance(value, bool | str) else type(self.default)(value)

    def is_legal(self, value: Option) -> bool:
        """Whether a user may give this value."""
        if isinstance(self.default, bool | str):
            legal = isinstance(value, type(self.default))
            return legal and (not self.choices or value in self.choices)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if not self.low <= value <= min(self.high, _LARGEST):
            return False
        return isinstance(self.default, float) or float(value).is_integer()

    @property
    def legal(self) -> str:
        """The allowed values, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        if isinstance(self.default, bool):
            return "true or false"
        if isinstance(self.default, str):
            return "a text"
        number = "a whole number" if isinstance(self.default, int) else "a number"
        if math.isinf(self.high):
            return f"{number} of {self.low:.10g} or more"
        return f"{number} from {self.low:.10g} to {self.high:.10g}"


def checked_options(
    mirror: str, given: Mapping[str, Option], about: Mapping[str, OptionAbout], *, beside: str = ""
) -> dict[str, Any]:
    """The value of each option of a mirror: the user's, else its default. Texts of no `choices` are
    not checked. Raises InputError for an unknown option, which lists the valid ones and what the
    mirror takes `beside` them, and for an illegal value."""
    for name, value in given.items():
        if name not in about:
            raise InputError(
                f"mirror {mirror} has no option {name!r}{nearest(name, about)}; it has "
                f"{', '.join(about)}{beside}"
            )
        if not about[name].takes and not about[name].is_legal(value):
            legal = " or ".join(about[name].choices) or about[name].legal
            raise InputError(f"option {name} of mirror {mirror} is {value!r}; it must be {legal}")
    chosen: dict[str, Any] = {name: each.default for name, each in about.items()}
    for name, value in given.items():
        chosen[name] = value if about[name].takes else about[name].checked(value)
    return chosen


_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_CLASS: Final = re.compile(r"\[\^?\]?[^\]]*\]")
_NO_COUNT: Final = re.compile(r"\{(?![0-9]+(?:,[0-9]*)?\})")
_JAVA_TOO: Final = re.compile(
    "unterminated character set|bad character range .*[^[]$|missing \\), unterminated"
    "|unbalanced parenthesis|min repeat greater|the repetition number is too large"
    "|redefinition of group name|unexpected end of pattern"
)
"""Errors of Python's regular expressions that are errors in Java as well."""


def reason_against(pattern: str) -> str:
    """Why Java rejects a regular expression without backslashes, in a few words.

    Empty if Java may accept it. Python's parser finds common mistakes before a run starts anything;
    errors that only Java can find are left to the Java program.
    """
    try:
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            re.compile(_NAMED_GROUP.sub("(?P<", pattern))
    except (re.error, OverflowError) as error:
        reason = str(error.msg if isinstance(error, re.error) else error)
        anchored = any(character in pattern for character in "^${")  # Java repeats an anchor
        nothing = reason == "nothing to repeat" and not anchored
        return reason if nothing or _JAVA_TOO.match(reason) else ""
    if _NO_COUNT.search(_CLASS.sub("", pattern)):
        return "a '{' that does not begin {n}, {n,} or {n,m}"
    return ""

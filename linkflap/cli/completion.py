"""Shell completion (bash, zsh, fish) of linkflap's own names: scenarios, topologies, mirrors, and
the mirrors' options and values.

    eval "$(_LINKFLAP_COMPLETE=bash_source linkflap)"           in ~/.bashrc; zsh_source for zsh
    _LINKFLAP_COMPLETE=fish_source linkflap | source            in ~/.config/fish/config.fish

Bash breaks words at `=` and `:`, so that `--set delivery=ex` arrives as four words. They are joined
again. The answer is only the text after the last of these characters, since bash inserts no more.
Zsh and fish insert complete words: for `--mirror=m` the answer is `--mirror=mm2`.

The catalogue of `linkflap list` has every name that a user can give, with a description.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

if TYPE_CHECKING:
    from linkflap.harness.model.option import OptionAbout

Items = list[CompletionItem[str]]
_BREAKS: Final = "=:"


@add_completion_class
class Bash(BashComplete):
    """Bash, with words that hold `=` or `:`; no blank follows a name that ends in `=`."""

    source_template = BashComplete.source_template.replace(
        "    return 0\n", "    [[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace\n\n    return 0\n"
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the incomplete word, and the incomplete word as typed so far."""
        raw = split_arg_string(os.environ["COMP_WORDS"])
        last = int(os.environ["COMP_CWORD"])
        words = [*raw[:last], raw[last] if last < len(raw) else ""]
        joined: list[str] = []
        for index, word in enumerate(words):
            after = index > 0 and bool(words[index - 1]) and not words[index - 1].strip(_BREAKS)
            if joined and (after or (word and not word.strip(_BREAKS))):
                joined[-1] += word
            else:
                joined.append(word)
        return joined[1:-1], joined[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """The completion without the part of the word that bash keeps."""
        incomplete = self.get_completion_args()[1]
        kept = len(re.split(f"[{_BREAKS}]", incomplete)[-1])
        of_option = incomplete.startswith("--") and "=" in incomplete
        written = incomplete.partition("=")[2] if of_option else incomplete
        value = str(item.value)
        if item.type == "plain" and value.startswith(written):
            value = value[len(written) - kept :]
        return f"{item.type},{value}"


@add_completion_class
class Zsh(ZshComplete):
    """Zsh, with words that hold `=`; no blank follows a name that ends in `=`."""

    source_template = (
        ZshComplete.source_template.replace("local -a response", "local -a response nospace")
        .replace(
            '"$type" == "plain" ]]; then',
            '"$type" == "plain" ]]; then\n            [[ "$key" == *= ]] && nospace=(-S "")',
        )
        .replace(
            "completions_with_descriptions -U", 'completions_with_descriptions -U "${nospace[@]}"'
        )
        .replace("compadd -U", 'compadd -U "${nospace[@]}"')
    )

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """The word that is put in."""
        return super().format_completion(_word(self, item))


@add_completion_class
class Fish(FishComplete):
    """Fish, with words that hold `=` and help that holds commas."""

    source_template = FishComplete.source_template.replace(
        'string split ","', 'string split --max 1 ","'
    )

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """The word that is put in."""
        return super().format_completion(_word(self, item))


def _word(shell: ShellComplete, item: CompletionItem[Any]) -> CompletionItem[Any]:
    """The completion of a word such as `--mirror=m`: click completes only the part after the first
    `=`."""
    option, equals, _ = shell.get_completion_args()[1].partition("=")
    if item.type != "plain" or not equals or not option.startswith("--"):
        return item
    return CompletionItem(f"{option}={item.value}", item.type, item.help)


def _items(known: Mapping[str, str], incomplete: str) -> Items:
    return [
        CompletionItem(name, help=about)
        for name, about in known.items()
        if name.startswith(incomplete)
    ]


def _names(known: Iterable[str], incomplete: str) -> Items:
    return _items(dict.fromkeys(known, ""), incomplete)


def scenarios(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Built-in scenarios; files if no scenario matches."""
    from linkflap.chaos.scenarios import SCENARIOS

    return _names(SCENARIOS, incomplete) or [CompletionItem(incomplete, type="file")]


def mirrors(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    from linkflap.harness.mirrors import MIRRORS

    return _names(MIRRORS, incomplete)


def mirror_options(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """Names of the options of the mirror named by --mirror, or of all mirrors. After the `=`, the
    values of the option."""
    from linkflap.harness.mirrors import MIRRORS

    kind = str(ctx.params.get("mirror") or "")
    abouts = [MIRRORS[kind].about] if kind in MIRRORS else [each.about for each in MIRRORS.values()]
    name, equals, value = incomplete.partition("=")
    if not equals:
        return _items(
            {f"{option}=": about.about for every in abouts for option, about in every.items()},
            incomplete,
        )
    values = (each for every in abouts if name in every for each in every[name].choices)
    return _names((f"{name}={each}" for each in values), f"{name}={value}")


def runtimes(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    from linkflap.harness.runtimes import RUNTIMES

    return _names(RUNTIMES, incomplete)


def libraries(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    from linkflap.harness.model.scenario import LIBRARIES

    return _names(LIBRARIES, incomplete)


def topologies(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """The named topologies. Arrows cannot be completed."""
    from linkflap.topologies import TOPOLOGIES

    return _names((name.replace("_", "-") for name in TOPOLOGIES), incomplete)


def titles(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """The arguments of `linkflap list`."""
    return _names((*catalogue(), "options"), incomplete)


def run_directories(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> Items:
    """The folders in linkflap-runs/; any folder if none matches."""
    from linkflap.cli.output import RUNS

    there = sorted(
        (f"{RUNS}/{path.name}" for path in RUNS.glob("*") if path.is_dir()), reverse=True
    )
    return _names(there, incomplete) or [CompletionItem(incomplete, type="dir")]


def catalogue() -> Mapping[str, Mapping[str, str]]:
    """Title -> name -> description in one line."""
    from linkflap.chaos.default_workloads import KINDS as SEVERAL
    from linkflap.chaos.faults import FAULTS
    from linkflap.chaos.scenarios import SCENARIOS, about
    from linkflap.chaos.triggers import documented, known
    from linkflap.harness.mirrors import MIRRORS
    from linkflap.harness.model.scenario import COMMAND, LIBRARIES
    from linkflap.harness.model.security import WORDS
    from linkflap.harness.workloads import KINDS
    from linkflap.spark_verify.checks import REGISTRY
    from linkflap.spark_verify.checks.base import RUN_GUARANTEES
    from linkflap.topologies import TOPOLOGIES

    return {
        "scenarios": {name: about(name) for name in SCENARIOS},
        "topologies": {name: _first_paragraph(build) for name, build in TOPOLOGIES.items()},
        "security": dict(WORDS),
        "mirrors": {
            name: _first_paragraph(inspect.getmodule(kind.make)) for name, kind in MIRRORS.items()
        },
        "workloads": {name: kind.about for name, kind in KINDS.items()}
        | {COMMAND: "a program of your own (linkflap docs own-application)", **SEVERAL},
        "clients": dict(LIBRARIES),
        "faults": {name: _first_paragraph(fault) for name, fault in FAULTS.items()},
        "triggers": {name: _first_paragraph(documented(name)) for name in known()},
        "checks": {name: check.guarantee for name, check in REGISTRY.items()}
        | dict(RUN_GUARANTEES),
    }


def options() -> Mapping[str, Mapping[str, OptionAbout]]:
    """`mirror NAME`, `workload NAME` or `fault NAME` -> option -> its values, default and
    description."""
    from linkflap.chaos.faults import FAULTS
    from linkflap.harness.mirrors import MIRRORS
    from linkflap.harness.model.scenario import COMMAND
    from linkflap.harness.workloads import COMMAND_OPTIONS, KINDS

    return {
        **{f"mirror {name}": kind.about for name, kind in MIRRORS.items()},
        **{f"workload {name}": kind.options for name, kind in KINDS.items()},
        f"workload {COMMAND}": COMMAND_OPTIONS,
        **{f"fault {name}": fault.options for name, fault in FAULTS.items() if fault.options},
    }


def _first_paragraph(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())

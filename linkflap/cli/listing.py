"""`linkflap list`: prints every name that a user can give. With a title it prints only that
section; the section of mirrors has their options. `linkflap docs`: the pages of docs/, which an
installed linkflap has too."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from linkflap.cli import completion
from linkflap.harness.model.errors import InputError
from linkflap.harness.model.texts import nearest

if TYPE_CHECKING:
    from linkflap.harness.model.option import OptionAbout

OPTIONS: Final = "options"


@click.command("list")
@click.argument("what", metavar="[WHAT]", required=False, shell_complete=completion.titles)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def list_(what: str | None, as_json: bool) -> int:
    """Lists every name that you can give.

    WHAT: scenarios, topologies, security, mirrors, workloads, clients, faults, triggers, checks or
    options. `mirrors` and `options` also list every option with its values and its
    default.
    """
    known = completion.catalogue()
    if what == OPTIONS:
        every = completion.options()
        click.echo(json.dumps({OPTIONS: _plain(every)}) if as_json else _keys() + _options(every))
    elif what is None or what in known:
        chosen = known if what is None else {what: known[what]}
        mirrors = (
            {
                name: about
                for name, about in completion.options().items()
                if name.startswith("mirror ")
            }
            if what == "mirrors"
            else {}
        )
        click.echo(
            json.dumps({**chosen, **({OPTIONS: _plain(mirrors)} if mirrors else {})})
            if as_json
            else _names(chosen)
        )
        if mirrors and not as_json:
            click.echo(_options(mirrors))
    else:
        titles = (*known, OPTIONS)
        raise InputError(
            f"there is no list of {what!r}{nearest(what, titles)}; give one of {', '.join(titles)}"
        )
    return 0


def _names(chosen: Mapping[str, Mapping[str, str]]) -> str:
    return "\n".join(
        f"{title}:\n" + "".join(f"{_entry(name, about)}\n" for name, about in entries.items())
        for title, entries in chosen.items()
    )


def _entry(name: str, about: str) -> str:
    """A name and what it is, in lines of 110 characters."""
    return textwrap.fill(
        about, width=110, initial_indent=f"  {name:28} ", subsequent_indent=" " * 31
    )


def _keys() -> str:
    """The keys of a scenario file, by table."""
    from linkflap.chaos.scenario_file import KEYS

    return _names({f"scenario file, {where}": keys for where, keys in KEYS.values()}) + "\n"


def _options(every: Mapping[str, Mapping[str, OptionAbout]]) -> str:
    lines = []
    for owner, options in every.items():
        lines.append(f"options of {owner}:")
        for name, option in options.items():
            default = "default: none" if option.default == "" else f"default {option.default}"
            lines.append(f"  {name:28} {option.values} ({default})")
            lines += [f"  {'':28} {option.about}"] if option.about else []
        lines.append("")
    return "\n".join(lines)


def _plain(every: Mapping[str, Mapping[str, OptionAbout]]) -> dict[str, Any]:
    return {
        owner: {name: asdict(option) for name, option in options.items()}
        for owner, options in every.items()
    }


_PACKAGE: Final = Path(__file__).parents[1]
_TITLE: Final = "# "


def pages() -> Mapping[str, Path]:
    """Every page by its name: `checks`, `findings/librdkafka-3437`, `examples/connect/README`."""
    own = _PACKAGE / "docs"
    root = own if own.is_dir() else _PACKAGE.parent / "docs"  # a checkout has them beside it
    return {path.relative_to(root).with_suffix("").as_posix(): path for path in root.rglob("*.md")}


def page(name: str) -> str:
    """The text of a page, by its name or as it is cited: `docs/checks.md#lost-write`. Raises
    InputError."""
    every = pages()
    asked = name.partition("#")[0].removeprefix("docs/").removesuffix(".md")
    if asked not in every:
        near = nearest(asked, every)
        raise InputError(f"there is no page {name!r}{near}; linkflap docs lists them")
    return every[asked].read_text("utf-8")


def _title(path: Path) -> str:
    with path.open(encoding="utf-8") as lines:
        return next((line for line in lines if line.startswith(_TITLE)), "").strip("# \n")


@click.command()
@click.argument("name", metavar="[PAGE]", default="")
def docs(name: str) -> int:
    """Prints a page of the documentation.

    PAGE is its name (checks) or how it is cited (docs/checks.md). Without it, all are listed.
    """
    if not name:
        for each, path in sorted(pages().items(), key=lambda item: (item[0].count("/"), item[0])):
            click.echo(f"{each:50} {_title(path)}")
        return 0
    text = page(name)
    if not sys.stdout.isatty():
        click.echo(text)
        return 0
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))
    return 0

"""`linkflap docs`: the pages of docs/, which an installed linkflap has too."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from linkflap.harness.model.errors import InputError
from linkflap.harness.model.texts import nearest

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
    """Prints a page of the documentation (checks, docs/checks.md); without PAGE, lists them."""
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

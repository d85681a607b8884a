"""Puts the layers of pyproject.toml into docs/design.md.

python docs/make_layers.py
"""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- layers: python docs/make_layers.py -->\n", "<!-- end of layers -->\n"


def layers() -> str:
    """The layers contracts, each as a block: the first is of the whole, the others of one
    package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = [c for c in settings["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    blocks = []
    for contract in contracts:
        inside = [f"# inside {name}" for name in contract.get("containers", ())]
        blocks.append("\n".join(["```", *inside, *contract["layers"], "```\n"]))
    return "".join(blocks)


def render(page: str) -> str:
    """The page with the layers as they are now."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + layers() + END + after


if __name__ == "__main__":
    path = ROOT / "docs" / "design.md"
    path.write_text(render(path.read_text()))

"""No Python file of the product or its tests has more than 300 lines."""

from __future__ import annotations

import pytest

from tests.unit.source_folders import FOLDERS, ROOT

MOST = 300


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_file_is_longer(folder: str) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    lines = {path.relative_to(ROOT): path.read_text().count("\n") for path in paths}
    too_long = [f"{path}: {count}" for path, count in lines.items() if count > MOST]
    assert not too_long, f"more than {MOST} lines; split by subject: {', '.join(too_long)}"

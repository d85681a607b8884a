"""The pictures of the report in docs/img, made anew: `python docs/make_pictures.py [VALID_RUNDIR
INVALID_RUNDIR]`.

Without run directories it records two: link-flap, and producer-id-collision with a mirror that
keeps producer ids. Chromium takes the pictures; the package playwright drives it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).resolve().parent
PICTURES = {
    "report.png": (1, 1180, 760, "light", ""),
    "report-dark.png": (1, 1180, 760, "dark", "timeline"),
    "report-offsets.png": (1, 1180, 420, "light", "lanes"),
    "report-valid.png": (0, 1180, 760, "light", ""),
    "report-phone.png": (1, 390, 760, "light", ""),
}
"""Name -> which run, width, height, light or dark, the section at the top."""
RUNS = (("link-flap",), ("producer-id-collision", "--set", "producer_ids=keep"))


def main() -> None:
    given = [Path(argument).resolve() for argument in sys.argv[1:]]
    if len(given) not in (0, len(RUNS)):
        raise SystemExit(
            "give a valid and an invalid run directory, or none and both are recorded; given "
            f"{len(given)}"
        )
    for folder in given:
        if not (folder / "report.html").is_file():
            raise SystemExit(
                f"{folder} has no report.html; write it with: linkflap verify {folder}"
            )
    with tempfile.TemporaryDirectory() as scratch:
        runs = given or [_recorded(Path(scratch), *run) for run in RUNS]
        with sync_playwright() as playwright:
            chromium = (
                shutil.which("chromium")
                or shutil.which("chromium-browser")
                or shutil.which("google-chrome")
            )
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            for name, (run, width, height, scheme, section) in PICTURES.items():
                _picture(browser, runs[run] / "report.html", name, (width, height), scheme, section)
            browser.close()


def _recorded(folder: Path, scenario: str, *options: str) -> Path:
    """A run, recorded and judged in a folder, so that the report has no path of this machine in
    it."""
    command = [
        sys.executable,
        "-m",
        "linkflap",
        "run",
        scenario,
        "--runtime",
        "process",
        "--seed",
        "7",
        "--out",
        scenario,
        *options,
    ]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    if subprocess.run(command, cwd=folder, env=environment, check=False).returncode not in (0, 1):
        raise SystemExit(f"{scenario} has no verdict to take a picture of")
    return folder / scenario


def _picture(
    browser: Browser, page: Path, name: str, size: tuple[int, int], scheme: str, section: str
) -> None:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if scheme == "dark" else "light",
        offline=True,
    )
    shown = context.new_page()
    shown.goto(page.as_uri())
    shown.wait_for_selector("html[data-drawn=yes]", state="attached")
    if section:
        shown.evaluate("(id) => document.getElementById(id).scrollIntoView()", section)
    shown.screenshot(path=str(HERE / "img" / name))
    context.close()


if __name__ == "__main__":
    main()

"""Puts what is at the top for people to see into the package, where an installed linkflap finds it:
the images' recipes (docker/) and the pages of the documentation (docs/)."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithBeside(build_py):
    """An editable install finds them where they are."""

    def run(self) -> None:
        if not self.editable_mode:
            # setuptools leaves modules there that an older checkout had, and packages them again
            shutil.rmtree(Path(self.build_lib, "linkflap"), ignore_errors=True)
        super().run()
        if not self.editable_mode:
            top, package = Path(__file__).parent, Path(self.build_lib, "linkflap")
            recipes = package / "harness" / "runtimes" / "docker" / "recipes"
            shutil.copytree(top / "docker", recipes, dirs_exist_ok=True)
            for page in (top / "docs").rglob("*.md"):
                target = package / page.relative_to(top)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(page, target)


setup(cmdclass={"build_py": WithBeside})

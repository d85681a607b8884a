"""Puts the images' recipes, which are in docker/ for people to see, into the package, where an
installed linkflap finds them."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithRecipes(build_py):
    """An editable install finds them where they are."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib, "linkflap", "harness", "runtimes", "docker", "recipes")
            shutil.copytree(Path(__file__).parent / "docker", target, dirs_exist_ok=True)


setup(cmdclass={"build_py": WithRecipes})

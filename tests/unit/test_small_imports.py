"""Processes that start with every run import nothing that is slow and not needed there."""

from __future__ import annotations

import random
import struct
import subprocess
import sys

import numpy as np
import pytest

from linkflap.harness.log import layout, segments
from linkflap.harness.log.segment_files import Bytes

_SLOW = {"hypothesis", "numba", "pandas", "pyarrow", "pyspark"}


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("linkflap.harness.recording.run", _SLOW),
        ("linkflap.harness.mirrors.shadow.__main__", {*_SLOW, "numpy", "confluent_kafka"}),
    ],
)
def test_a_process_of_a_run_imports_no_more_than_it_needs(module: str, unwanted: set[str]) -> None:
    program = f"import {module}, sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    assert module in loaded
    assert not unwanted & set(loaded)


def batches(seed: int) -> Bytes:
    """Bytes like those of a segment: correct, negative, too large and too small lengths; right and
    wrong magics; torn at the end."""
    rng, data = random.Random(seed), bytearray()
    for _ in range(rng.randrange(40)):
        length = rng.randrange(layout.SMALLEST_LENGTH, 300)
        batch = bytearray(rng.randbytes(layout.LENGTH_ENDS + length))
        struct.pack_into(
            ">i",
            batch,
            layout.LENGTH_AT,
            rng.choice([length] * 30 + [-1, 0, 7, length + 1, 2**31 - 1]),
        )
        batch[layout.MAGIC_AT] = rng.choice([layout.MAGIC] * 30 + [0, 1, 255])
        data += batch
    return np.frombuffer(bytes(data[: len(data) - rng.choice([0, 0, 1, 50])]), np.uint8)


@pytest.mark.parametrize("seed", range(20))
def test_batches_are_found_alike_by_the_interpreter_and_by_machine_code(seed: int) -> None:
    data = batches(seed)
    for begin, until in [(0, 16 << 20), (0, len(data) // 2)]:
        plain, plain_end = segments._sound(data, begin, until)
        quick, quick_end = segments._compiled_sound()(data, begin, until)
        assert (plain.tolist(), plain_end) == (quick.tolist(), quick_end)
        assert type(plain_end) is int  # it reads damaged bytes, and damage opens files

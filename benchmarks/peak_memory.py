"""The peak memory of a process and all its descendants, by name."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil


class Memory(threading.Thread):
    """Samples the peak memory of a process and all its descendants, by name, in MiB."""

    def __init__(self, process: int) -> None:
        super().__init__(daemon=True)
        self._process, self._over = psutil.Process(process), threading.Event()
        self.peak: dict[str, float] = {}

    def run(self) -> None:
        while not self._over.wait(0.1):
            found: dict[str, float] = {}
            try:
                every = [self._process, *self._process.children(recursive=True)]
            except psutil.Error:
                continue
            for each in every:
                name = "driver" if each == self._process else "workers"
                try:
                    name = "JVM" if each.name() == "java" else name
                except psutil.Error:
                    continue
                found[name] = found.get(name, 0) + _proportional(each.pid)
            found["all"] = sum(found.values())
            self.peak = {
                name: max(size, self.peak.get(name, 0))
                for name, size in (self.peak | found).items()
            }

    def stop(self) -> dict[str, int]:
        self._over.set()
        self.join()
        return {name: round(size) for name, size in self.peak.items()}


def _proportional(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024

"""Identifies a process by pid and start time, so that a reused pid is never taken for the former
process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One process, never mistaken for a later one with the same pid.

    `born` is boot id, pid namespace and start time in clock ticks since boot (proc(5)): it does not
    move with the wall clock.
    """

    pid: int
    born: str


def _host() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return "host"


def identify(pid: int) -> Identity | None:
    """The process that has this pid now; None when there is none, or only a zombie of one."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _identify_without_proc(pid)
    except ProcessLookupError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name in front may contain spaces and brackets
    return None if fields[0] in "ZX" else Identity(pid=pid, born=f"{_host()}/{fields[19]}")


def _identify_without_proc(pid: int) -> Identity | None:
    try:
        process = psutil.Process(pid)
        return (
            None
            if process.status() == psutil.STATUS_ZOMBIE
            else Identity(pid=pid, born=f"host/{process.create_time()}")
        )
    except psutil.NoSuchProcess:
        return None


def alive(process: Identity) -> bool:
    """Whether exactly this process lives. A process of another pid namespace cannot be judged from
    here: it counts as alive."""
    if process.born.partition("/")[0] != _host().partition("/")[0]:
        return False
    return elsewhere(process) or identify(process.pid) == process


def elsewhere(process: Identity) -> bool:
    """Whether the process is in another pid namespace of this boot, such as a container's: whether
    it runs cannot be seen from here."""
    boot, _, namespace = _host().partition("/")
    its_boot, _, rest = process.born.partition("/")
    return its_boot == boot and bool(namespace) and rest.rpartition("/")[0] != namespace

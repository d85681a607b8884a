"""Examines the machine: memory, processors, disk, open files, ports, its clock, and leftovers of
dead runs."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil

from linkflap.harness.cli.doctor.finding import GIB, Finding
from linkflap.harness.machine import leases, ledger, process_identity

_PLENTY_OF_PORTS: Final = 300


def look_at_memory() -> Finding:
    available, where = psutil.virtual_memory().available, "on this machine"
    limit, used = (
        _cgroup("memory.max", "memory.limit_in_bytes"),
        _cgroup("memory.current", "memory.usage_in_bytes"),
    )
    if limit is not None and limit - (used or 0) < available:
        available, where = limit - (used or 0), "in this control group"
    ok = False if available < 1.5 * GIB else None if available < 3 * GIB else True
    return Finding(
        name="memory",
        ok=ok,
        says=f"{available / GIB:.1f} GiB available {where}",
        fix="" if ok else "free some: two clusters, a mirror and Spark take about 3 GiB",
    )


def _cgroup(name: str, name_v1: str) -> int | None:
    """A memory value of this control group, version 2 or 1. None if there is no limit or no such
    file."""
    for path in (Path("/sys/fs/cgroup") / name, Path("/sys/fs/cgroup/memory") / name_v1):
        with contextlib.suppress(OSError):
            text = path.read_text().strip()
            return int(text) if text.isdigit() and int(text) < 1 << 60 else None
    return None


def look_at_cpu() -> Finding:
    cores = float(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, int(quota) / int(period))
    return Finding(
        name="cpu",
        ok=True if cores >= 2 else None,
        says=f"{cores:g} cores, load {os.getloadavg()[0]:.1f}",
        fix=(
            ""
            if cores >= 2
            else (
                "give it 2 cores: starved brokers fence themselves, and time-based checks become "
                "unknown"
            )
        ),
    )


def look_at_disk() -> Finding:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    return Finding(
        name="disk",
        ok=False if free < GIB / 2 else None if free < 2 * GIB else True,
        says=f"{free / GIB:.1f} GiB free for run directories in {here}",
        fix="" if free >= 2 * GIB else "make room, or let --out name a folder on another disk",
    )


def look_at_open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A JVM raises its own soft limit to the hard one; the harness and librdkafka keep the soft one.
    limit = float("inf") if hard == resource.RLIM_INFINITY else hard
    ok = False if limit < 1024 else None if limit < 8192 or 0 <= soft < 1024 else True
    says = f"up to {'any number' if limit == float('inf') else int(limit)} ({soft} without asking)"
    return Finding(
        name="open files", ok=ok, says=says, fix="" if ok else "raise it: ulimit -n 65536"
    )


def look_at_ports() -> Finding:
    first, last = leases.port_range()
    count = last - first + 1
    says = f"{first}-{last}, {count} ports for brokers and proxies"
    if count < _PLENTY_OF_PORTS:
        return Finding(
            name="ports",
            ok=None,
            says=says,
            fix="set LINKFLAP_PORTS to a wider range, e.g. 17000-32767",
        )
    with contextlib.suppress(OSError):
        lowest, highest = map(
            int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        )
        if first <= highest and lowest <= last:
            fix = (
                "outgoing connections may take them: set LINKFLAP_PORTS or "
                "net.ipv4.ip_local_port_range"
            )
            return Finding(
                name="ports",
                ok=None,
                says=f"{says}, overlapping the kernel's {lowest}-{highest}",
                fix=fix,
            )
    return Finding(name="ports", ok=True, says=says)


def look_at_clock() -> Finding:
    """If the clock is years off, the certificate of every download is refused. If the file system
    has another clock, caches fail."""
    with tempfile.NamedTemporaryFile() as file:
        apart = abs(os.stat(file.name).st_mtime - time.time())
    year = time.gmtime().tm_year
    fine = year >= 2025 and apart < 5
    return Finding(
        name="clock",
        ok=True if fine else None,
        says=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
        + ("" if apart < 5 else f", {apart:.0f} s off the file system's"),
        fix="" if fine else "set this machine's clock",
    )


def look_at_leftovers() -> Finding:
    dead = [entry for entry in ledger.entries() if not process_identity.alive(entry.owner)]
    if not dead:
        return Finding(name="leftovers", ok=True, says="none of dead runs")
    held = sum(
        len(entry.children) + len(entry.contained) + len(entry.folders) + len(entry.mounts)
        for entry in dead
    )
    engines = {engine for entry in dead for engine in entry.engines}
    says = f"of {len(dead)} dead runs, {held} things" + (
        ", and what is in the Docker engine" if engines else ""
    )
    return Finding(name="leftovers", ok=None, says=says, fix="linkflap clean")

"""Leases of ports and memory among the harnesses that run at the same time on one machine.

A leased port is below the kernel's ephemeral range, in nobody else's lease, and free at the moment
of the lease (bound once). Memory is an agreement between harnesses: a deployment waits until the
machine's available memory, less what others leased and do not use yet, is enough for it. A lease
ends with `release`, or with its owner (`harness.machine.cleanup`).

$LINKFLAP_PORTS ("17000-32767") overrides the range.
"""

from __future__ import annotations

import os
import random
import socket
import threading
from dataclasses import replace
from pathlib import Path

import psutil

from linkflap.harness.machine import cleanup, ledger, process_identity
from linkflap.harness.model.errors import DeadlineExceeded, InputError, SetupError
from linkflap.harness.model.wait import until

_DEFAULT_RANGE = (17000, 32767)


class Lease:
    """The ports and memory of one deployment. Thread-safe; `release` returns everything, and may be
    called twice.
    """

    def __init__(self) -> None:
        self._ports: list[int] = []
        self._memory = 0
        self._lock = threading.Lock()

    def ports(self, count: int) -> list[int]:
        """Leases `count` more ports. Raises SetupError if the range has too few free ones."""
        cleanup.start_watchdog()
        with ledger.machine_lock(), self._lock:
            held = {
                port
                for entry in ledger.entries()
                if process_identity.alive(entry.owner)
                for port in entry.ports
            }
            found = _free_ports(count, held)
            ledger.change(lambda entry: replace(entry, ports=(*entry.ports, *found)))
            self._ports.extend(found)
        return found

    def memory(self, size: int, *, within: float = 600) -> None:
        """Leases `size` more bytes as soon as the machine has them. Raises SetupError after
        `within` seconds.
        """
        cleanup.start_watchdog()
        headroom = _Headroom(size)
        if size > headroom.total:
            raise SetupError(
                f"this needs {size >> 20} MB of memory and the machine has {headroom.total >> 20} "
                "MB; use fewer brokers"
            )
        try:
            until(lambda: self._take(headroom), within=within, what="memory", every=0.25)
        except DeadlineExceeded as error:
            raise SetupError(
                f"waited {within:g} s for {size >> 20} MB of memory and "
                f"{max(0, headroom.left) >> 20} MB are left; end other runs on this machine, or "
                "use fewer brokers"
            ) from error

    def reserve(self, size: int) -> None:
        """Leases `size` more bytes without waiting: for a process that joins a running
        deployment.
        """
        with self._lock:
            ledger.change(lambda entry: replace(entry, memory=entry.memory + size))
            self._memory += size

    def _take(self, headroom: _Headroom) -> bool:
        with ledger.machine_lock():
            if not headroom.enough():
                return False
            self.reserve(headroom.size)
            return True

    def release(self) -> None:
        with self._lock:
            ports, memory = set(self._ports), self._memory
            ledger.change(
                lambda entry: replace(
                    entry,
                    ports=tuple(p for p in entry.ports if p not in ports),
                    memory=entry.memory - memory,
                )
            )
            self._ports.clear()
            self._memory = 0


class _Headroom:
    """The part of the machine's memory that is left for `size` more bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.left = 0
        self.total = min(psutil.virtual_memory().total, _cgroup_limit())

    def enough(self) -> bool:
        # Memory that a living owner leased and its children already use is missing from
        # `available` too: count it once.
        unused = sum(
            max(0, e.memory - _in_use(e))
            for e in ledger.entries()
            if process_identity.alive(e.owner)
        )
        self.left = min(psutil.virtual_memory().available, self.total) - unused
        return self.left >= self.size


def _in_use(entry: ledger.OwnerEntry) -> int:
    used = 0
    for child in (*entry.children, *entry.contained):
        try:
            used += int(psutil.Process(child.pid).memory_info().rss)
        except psutil.Error:
            continue  # ended since
    return used


def _cgroup_limit() -> int:
    """The memory limit in bytes of the container that this process runs in; a very large number
    without one.
    """
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(path).read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            return int(text)
    return 1 << 62


def port_range() -> tuple[int, int]:
    """First and last port that may be leased."""
    override = os.environ.get("LINKFLAP_PORTS")
    if override:
        first, _, last = override.partition("-")
        if not (first.isdigit() and last.isdigit() and 1024 <= int(first) <= int(last) <= 65535):
            raise InputError(f"LINKFLAP_PORTS is {override!r}; give a range such as 17000-32767")
        return int(first), int(last)
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except OSError:
        return _DEFAULT_RANGE
    return (
        (max(1024, min(_DEFAULT_RANGE[0], lowest - 4000)), lowest - 1)
        if lowest > 6000
        else _DEFAULT_RANGE
    )


def _free_ports(count: int, held: set[int]) -> list[int]:
    first, last = port_range()
    # another user's harness, whose leases we cannot see, most likely starts elsewhere
    start = random.randint(first, last)
    found: list[int] = []
    for port in (*range(start, last + 1), *range(first, start)):
        if len(found) == count:
            break
        if port not in held and _bindable(port):
            found.append(port)
    if len(found) < count:
        raise SetupError(
            f"{count} ports are needed and {len(found)} of {first}-{last} are free; end other runs "
            "(`linkflap clean` removes leftovers), or set LINKFLAP_PORTS to a wider range"
        )
    return found


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        # as servers do: TIME_WAIT does not count
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True

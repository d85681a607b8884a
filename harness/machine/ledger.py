"""The resources that each harness process holds on this machine: one small file per process,
readable by every other process of the same user.

An entry lists the ports, memory, child processes and temporary folders of its owner. It names the
owner by pid and start time, so that a reused pid is never taken for it; children are named in the
same way. `end` ends the children of a dead owner, and removes its folders, what it made on clusters
that it did not start, and its entry.

The ledger's folder is in the temporary directory, one per user, or $LINKFLAP_RUNTIME_DIR.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from filelock import FileLock

from linkflap.harness.machine import (
    attached_leftovers,
    engine_leftovers,
    rest_leftovers,
    trusted_folders,
    untrusted_files,
)
from linkflap.harness.machine.attached_leftovers import Attached
from linkflap.harness.machine.broker_commands import BrokerCommand
from linkflap.harness.machine.engine_leftovers import StillThere
from linkflap.harness.machine.process_identity import Identity, alive, identify
from linkflap.harness.machine.rest_leftovers import RestObject
from linkflap.harness.model.errors import FaultError, SetupError
from linkflap.harness.model.wait import until

_DETACH: Final = 2


def mount(folder: Path, *, size: int) -> None:
    """Mounts an empty tmpfs of so many bytes on `folder`. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"linkflap", os.fsencode(folder), b"tmpfs", 0, f"size={size},mode=0755".encode()):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))


def unmount(folder: Path) -> bool:
    """Whether something was mounted there; it is gone then, at the latest when the last file in it
    is closed. Raises Untrusted where somebody else could have put a link in its way."""
    if folder.is_symlink() or not os.path.ismount(folder):
        return False
    trusted_folders.check(folder.parent)
    libc = ctypes.CDLL(None, use_errno=True)
    return not libc.umount2(os.fsencode(folder), _DETACH)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerEntry:
    """The resources of one owner. `memory` is bytes, `children` are leaders of their own process
    groups.

    `engines` are Docker engines (as DOCKER_HOST has them, empty: the default) where things with
    this owner's label may be, one for each deployment. `contained` are processes in containers,
    whose memory is the owner's and which the engine ends. `mounts` are folders on which something
    is mounted. `attached` are clusters that linkflap did not start, with topics and groups of the
    owner's, `broken` what undoes the faults of their brokers, and `made` connectors and proxies of
    the owner's on servers of others. `serves` are sockets where it
    answers other processes of this user, by what they must agree on with it.
    """

    owner: Identity
    ports: tuple[int, ...] = ()
    memory: int = 0
    children: tuple[Identity, ...] = ()
    folders: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    contained: tuple[Identity, ...] = ()
    mounts: tuple[str, ...] = ()
    attached: tuple[Attached, ...] = ()
    broken: tuple[BrokerCommand, ...] = ()
    made: tuple[RestObject, ...] = ()
    serves: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Own:
    """This process' own entry, and the lock around it."""

    pid: int
    entry: OwnerEntry
    lock: threading.Lock = field(default_factory=threading.Lock)


def folder() -> Path:
    """Where the entries are; made when missing, readable by this user only."""
    override = os.environ.get("LINKFLAP_RUNTIME_DIR")
    # Not XDG_RUNTIME_DIR: a login shell has one and cron or CI has not, and both must see each
    # other's leases.
    path = Path(override) if override else Path(tempfile.gettempdir()) / f"linkflap-{os.getuid()}"
    try:
        trusted_folders.check(path, make=True)
    except (trusted_folders.Untrusted, OSError) as error:
        raise SetupError(
            f"{path} cannot be trusted with what linkflap ends and removes ({error}); set "
            "LINKFLAP_RUNTIME_DIR to a folder that only you can write"
        ) from None
    return path


def machine_lock() -> FileLock:
    """A lock for choosing resources, such as ports, that two processes must not both choose."""
    return FileLock(folder() / "leases.lock")


def path_of(owner: Identity) -> Path:
    """The file of an owner's entry."""
    return folder() / f"{owner.pid}-{owner.born.rpartition('/')[2]}.json"


def entries() -> list[OwnerEntry]:
    """The entries of all owners, living and dead."""
    found = []
    for path in sorted(folder().glob("*.json")):
        # its owner has released everything meanwhile
        with contextlib.suppress(OSError, msgspec.DecodeError):
            entry = untrusted_files.decoded(untrusted_files.content(path), OwnerEntry)
            # only absolute paths are noted: another would name what is where `clean` is run
            paths = (*entry.folders, *entry.mounts)
            if all(map(os.path.isabs, paths)) and "\0" not in "".join((entry.owner.born, *paths)):
                found.append(entry)
    return found


_own: _Own | None = None
_own_lock = threading.Lock()


def _mine() -> _Own:
    """This process' entry; a forked child starts with one of its own."""
    global _own
    with _own_lock:
        if _own is None or _own.pid != os.getpid():
            me = identify(os.getpid())
            assert me is not None
            _own = _Own(pid=os.getpid(), entry=OwnerEntry(owner=me))
        return _own


def change(edit: Callable[[OwnerEntry], OwnerEntry]) -> None:
    """Changes this process' entry, in memory and on disk; an entry that holds nothing has no
    file."""
    mine = _mine()
    with mine.lock:
        mine.entry = edit(mine.entry)
        path = path_of(mine.entry.owner)
        if mine.entry == OwnerEntry(owner=mine.entry.owner):
            path.unlink(missing_ok=True)
            return
        partial = path.with_suffix(".partial")
        # also where the umask would let others write: what it lists is ended and removed
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(mine.entry))
        partial.replace(path)


def own() -> OwnerEntry:
    """The resources of this process."""
    return _mine().entry


def _set(field_: str, to: Callable[[tuple[Any, ...]], Iterable[object]]) -> None:
    def changed(entry: OwnerEntry) -> OwnerEntry:
        new: dict[str, Any] = {field_: tuple(to(getattr(entry, field_)))}
        return replace(entry, **new)

    change(changed)


def _add(field_: str, item: object) -> None:
    _set(field_, lambda held: (*held, item))


def _remove(field_: str, item: object) -> None:
    """Removes every item that is equal."""
    _set(field_, lambda held: (each for each in held if each != item))


def add_child(child: Identity) -> None:
    _add("children", child)


def remove_child(child: Identity) -> None:
    _remove("children", child)


def add_contained(process: Identity) -> None:
    """A process in a container on this machine: its memory counts as this owner's."""
    _add("contained", process)


def remove_contained(process: Identity) -> None:
    _remove("contained", process)


def add_engine(engine: str) -> None:
    """Registers a Docker engine, before the first container with this owner's label is created
    there.
    """
    _add("engines", engine)


def remove_engine(engine: str) -> None:
    """Forgets one `add_engine`."""

    def without(engines: tuple[str, ...]) -> list[str]:
        left = list(engines)
        if engine in left:
            left.remove(engine)
        return left

    _set("engines", without)


def add_mount(path: Path) -> None:
    """A folder on which something is going to be mounted, and must not be after this process."""
    _add("mounts", str(path.absolute()))


def remove_mount(path: Path) -> None:
    """Removes from the ledger a folder on which nothing is mounted any more."""
    _remove("mounts", str(path.absolute()))


def add_attached(cluster: Attached) -> None:
    """A cluster on which this process is going to make topics and groups of its own."""
    _add("attached", cluster)


def remove_attached(cluster: Attached) -> None:
    """Removes the cluster from the ledger: this process has no topics or groups there any more."""
    _remove("attached", cluster)


def add_broken(undo: BrokerCommand) -> None:
    """A broker that is going to be down or paused, and must not be after this process."""
    _add("broken", undo)


def remove_broken(undo: BrokerCommand) -> None:
    """Removes the command from the ledger: the broker serves again."""
    _remove("broken", undo)


def add_made(made: RestObject) -> None:
    """A connector or proxy that is going to be made, and must not outlive this process."""
    _add("made", made)


def remove_made(every: Iterable[RestObject]) -> None:
    """Removes those of this process that are there; what could not be removed stays in the ledger,
    for `linkflap clean`."""
    for made in every:
        if made in own().made:
            try:
                list(rest_leftovers.remove(made))
                _remove("made", made)
            except StillThere as error:
                logging.getLogger("linkflap").warning("%s", error)


def add_service(key: str, path: Path) -> None:
    """Registers a service of this process: from now on others find it at this path."""
    change(lambda entry: replace(entry, serves={**entry.serves, key: str(path)}))


def remove_service(key: str) -> None:
    """Removes a service of this process from the ledger, so that other processes do not find it."""
    change(
        lambda entry: replace(
            entry, serves={name: path for name, path in entry.serves.items() if name != key}
        )
    )


def service(key: str) -> Path | None:
    """The socket of a process that lives and serves this key."""
    return next(
        (Path(each.serves[key]) for each in entries() if key in each.serves and alive(each.owner)),
        None,
    )


def add_folder(path: Path) -> None:
    """A folder that must not outlive this process."""
    _add("folders", str(path.absolute()))


def remove_folder(path: Path) -> None:
    """Removes the folder now, and its entry in the ledger."""
    trusted_folders.remove(path)
    _remove("folders", str(path.absolute()))


def _undone(entry: OwnerEntry) -> Iterator[str]:
    """Removes mounts and folders, as `end`."""
    still_there: list[str] = []
    for what, undo, paths in (
        ("mount on", unmount, entry.mounts),
        ("folder", trusted_folders.remove, entry.folders),
    ):
        for path in paths:
            name = f"{what} {path} of dead harness {entry.owner.pid}"
            try:
                if undo(Path(path)):
                    yield name
            except trusted_folders.Untrusted as error:
                still_there.append(f"{name} is left: {error}; look at it, and remove it yourself")
    if still_there:
        raise StillThere(still_there)


def _healed(entry: OwnerEntry) -> Iterator[str]:
    """Starts or resumes brokers that are not linkflap's, before anything is removed from their
    clusters; as `end`."""
    still_there: list[str] = []
    for undo in entry.broken:
        try:
            undo.run(None)
        except FaultError as error:
            still_there.append(f"{error}; {undo.verb} it yourself, or run linkflap clean again")
        else:
            yield f"fault of broker {undo.cluster}/{undo.broker}, by its command to {undo.verb} it"
    if still_there:
        raise StillThere(still_there)


def _each(removals: Iterable[Callable[[], Iterator[str]]], left: list[str]) -> Iterator[str]:
    """Does each of them, and adds what it could not remove to `left`."""
    for remove in removals:
        try:
            yield from remove()
        except StillThere as error:
            left += error.sentences


def _all_removed(entry: OwnerEntry) -> Iterator[str]:
    """All but children, as `end`."""
    still_there: list[str] = []
    engines = dict.fromkeys(entry.engines)
    started = {undo.cluster for undo in entry.broken}
    yield from _each(
        [
            partial(_healed, entry),
            partial(_undone, entry),
            *(partial(engine_leftovers.remove, engine, entry.owner) for engine in engines),
        ],
        still_there,
    )
    connectors = [made for made in entry.made if made.kind == "connector"]
    left_there: list[str] = []
    yield from _each([partial(rest_leftovers.remove, made) for made in connectors], left_there)
    proxies = [made for made in entry.made if made not in connectors]
    yield from _each([partial(rest_leftovers.remove, made) for made in proxies], still_there)
    if not left_there:  # a connector that is left makes topics again
        yield from _each(
            [
                partial(attached_leftovers.remove, cluster, starting=cluster.name in started)
                for cluster in entry.attached
            ],
            still_there,
        )
    still_there += left_there
    if still_there:
        raise StillThere(still_there)


def end(entry: OwnerEntry) -> Iterator[str]:
    """Ends and removes the leftovers of a dead owner, and yields their names. The caller has made
    sure that the owner is dead.

    Raises StillThere at the end if something in a Docker engine could not be removed; then the
    entry stays for the next time.
    """
    left = [child for child in entry.children if alive(child)]
    for child in left:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        yield f"process {child.pid} of dead harness {entry.owner.pid}"
    until(
        lambda: not any(alive(child) for child in left),
        within=20,
        what="the processes of a dead harness to end",
    )
    yield from _all_removed(entry)
    path_of(entry.owner).unlink(missing_ok=True)
    if entry.ports or entry.memory:
        yield (
            f"lease of dead harness {entry.owner.pid} ({len(entry.ports)} ports, "
            f"{entry.memory >> 20} MB)"
        )

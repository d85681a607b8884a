"""Files that others may have written are not believed, followed, waited for, or removed."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec
import pytest

from linkflap.harness.log.segments import LARGEST_FILE, map_segment
from linkflap.harness.machine import cache, cleanup, ledger, trusted_folders, untrusted_files
from linkflap.harness.machine.engine_leftovers import Removed
from linkflap.harness.machine.process_identity import Identity
from linkflap.harness.machine.trusted_folders import Untrusted
from linkflap.harness.model.errors import SetupError
from linkflap.judging import messages

# Another user of the machine cannot make linkflap remove, end, run or believe anything:
# attacked as that user, on a machine where these tests run as root.


NOBODY: Final = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root and a second user")


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A directory as /tmp is: everybody may make things in it. It is where temporary files go, and
    `tmp_path` is elsewhere."""
    path = Path(tempfile.mkdtemp(prefix="shared-", dir="/tmp"))
    path.chmod(0o1777)
    monkeypatch.delenv("LINKFLAP_RUNTIME_DIR", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(path))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A folder of root's that must be there after every attack."""
    path = tmp_path / "precious"
    path.mkdir()
    (path / "file").write_text("root's")
    return path


def attack(what: Callable[[], object], *, stays: bool = False) -> int:
    """Does something as the other user, in a process of its own. It ends, unless it `stays`: then
    its pid."""
    done, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.chdir("/")
            what()
            os.write(tell, b"done")
            while stays:
                signal.pause()
        finally:
            os._exit(0)
    os.close(tell)
    with open(done, "rb") as written:
        assert written.read(4) == b"done"
    if not stays:
        os.waitpid(pid, 0)
    return pid


def dead(**holds: object) -> bytes:
    """The entry of an owner that is dead and held this."""
    return msgspec.json.encode(
        {"owner": Identity(pid=2**22 - 1, born="of another boot/x/1")} | holds
    )


@needs_root
def test_a_ledger_that_is_another_users_is_not_read(shared: Path, precious: Path) -> None:
    ledger_of_root = shared / "linkflap-0"
    entry = dead(folders=[str(precious)])

    def plant() -> None:
        ledger_of_root.mkdir()
        (ledger_of_root / "1-1.json").write_bytes(entry)

    attack(plant)
    with pytest.raises(SetupError, match="belongs to user 65534"):
        cleanup.clean()
    assert (precious / "file").exists()


@needs_root
def test_a_ledger_that_another_user_linked_to_a_folder_of_roots_is_not_read(
    shared: Path, precious: Path
) -> None:
    # root's own folder where everybody may write, as a spool is: ownership alone says nothing
    spool = shared / "spool"
    spool.mkdir()
    spool.chmod(0o1777)
    entry = dead(folders=[str(precious)])

    def plant() -> None:
        (spool / "1-1.json").write_bytes(entry)
        (shared / "linkflap-0").symlink_to(spool)

    attack(plant)
    with pytest.raises(SetupError, match="belongs to user 65534"):
        cleanup.clean()
    assert (precious / "file").exists()


@needs_root
def test_a_ledger_below_a_folder_of_another_user_is_not_read(
    shared: Path, precious: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    def planted() -> None:
        (shared / "theirs").mkdir()
        (shared / "theirs").chmod(0o777)

    attack(planted)
    mine = shared / "theirs" / "ledger"
    mine.mkdir(mode=0o700)
    (mine / "1-1.json").write_bytes(dead(folders=[str(precious)]))
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", str(mine))
    with pytest.raises(SetupError, match="belongs to user 65534"):
        cleanup.clean()
    assert (precious / "file").exists()


@needs_root
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777, 0o707])
def test_a_ledger_in_which_others_may_write_is_not_read(shared: Path, mode: int) -> None:
    path = shared / "linkflap-0"
    path.mkdir()
    os.chown(path, 0, NOBODY)
    path.chmod(mode)
    with pytest.raises(SetupError, match="may write in"):
        ledger.folder()


@needs_root
def test_clean_follows_no_link_that_replaced_a_folder(
    shared: Path, precious: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is right: its folder is gone since, and somebody else has the name now."""
    gone = shared / "linkflap-gone"
    (ledger.folder() / "1-1.json").write_bytes(
        dead(folders=[str(gone), str(gone / "precious")], mounts=[str(gone / "precious")])
    )
    attack(lambda: gone.symlink_to(precious.parent))
    cleaned = cleanup.clean()
    assert (precious / "file").exists()
    assert cleaned.removed == []
    assert len(cleaned.left) == 2
    assert all("belongs to user 65534" in each for each in cleaned.left)


@needs_root
def test_unmount_follows_no_link_of_another_user(shared: Path, tmp_path: Path) -> None:
    target = tmp_path / "mounted"
    target.mkdir()
    try:
        ledger.mount(target, size=1 << 20)
    except OSError as error:
        pytest.skip(f"nothing can be mounted here: {error}")
    try:
        attack(lambda: (shared / "link").symlink_to(tmp_path))
        with pytest.raises(Untrusted):
            ledger.unmount(shared / "link" / "mounted")
        attack(lambda: (shared / "link2").symlink_to(target))
        assert not ledger.unmount(shared / "link2")
        assert os.path.ismount(target)
    finally:
        assert ledger.unmount(target)


@needs_root
def test_a_cache_of_another_user_is_not_used(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attack((shared / "theirs").mkdir)
    for path in (shared / "theirs", shared / "theirs" / "cache"):
        monkeypatch.setenv("LINKFLAP_CACHE", str(path))
        with pytest.raises(SetupError, match="belongs to user 65534"):
            cache.folder()


@needs_root
def test_a_forged_verifier_is_not_spoken_to(shared: Path) -> None:
    """The other user listens where a service of ours was."""
    path = shared / "socket"
    listener = socket.socket(socket.AF_UNIX)

    def listen() -> None:
        listener.bind(str(path))
        listener.listen()

    server = attack(listen, stays=True)
    try:
        with pytest.raises(PermissionError, match="user 65534"):
            messages.connect(path)
    finally:
        listener.close()
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)


@needs_root
def test_modules_of_another_user_are_not_imported_by_what_linkflap_starts(shared: Path) -> None:
    """Whoever stands in a directory of everybody's starts the watchdog and workers from there."""
    ends = "import os; os._exit(66)"
    attack(lambda: [(shared / f"{name}.py").write_text(ends) for name in ("select", "msgspec")])
    done = subprocess.run(
        [sys.executable, "-P", "-c",
         "import os, sys\n"
         "from linkflap.harness.machine import children\n"
         "command, environment = children.module('linkflap', '--version')\n"
         "os.execve(command[0], command, {**os.environ, **environment})"],
        cwd=shared, check=False, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", ["precious", "../precious", "", "/tmp/\0"])
def test_an_entry_that_linkflap_never_writes_removes_nothing(
    path: str, precious: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINKFLAP_RUNTIME_DIR", str(tmp_path / "ledger"))
    (ledger.folder() / "1-1.json").write_bytes(dead(folders=[path], mounts=[path]))
    monkeypatch.chdir(tmp_path)
    assert cleanup.clean() == Removed()
    assert (precious / "file").exists()


def test_temporary_files_are_not_made_where_others_can_replace_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(SetupError, match="set TMPDIR"):
        cleanup.private_folder()


def test_own_symbolic_links_are_followed_and_loops_end(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o755)
    (tmp_path / "absolute").symlink_to(tmp_path / "real")
    (tmp_path / "relative").symlink_to("absolute")
    (tmp_path / "real" / "up").symlink_to("../real")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("real", "absolute", "relative", "real/up", "relative/up/up"):
        trusted_folders.check(tmp_path / name)
    with pytest.raises(Untrusted):
        trusted_folders.check(tmp_path / "loop")
    with pytest.raises(FileNotFoundError):
        trusted_folders.check(tmp_path / "relative" / "missing")
    trusted_folders.check(tmp_path / "relative" / "new" / "folder", make=True)
    assert (tmp_path / "real" / "new" / "folder").stat().st_mode & 0o777 == 0o700


def test_a_folder_is_removed_with_all_in_it_and_without_what_it_links_to(
    tmp_path: Path, precious: Path
) -> None:
    folder = tmp_path / "folder"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "link").symlink_to(precious)
    assert trusted_folders.remove(folder)
    assert not folder.exists()
    assert not trusted_folders.remove(folder)
    assert not trusted_folders.remove(tmp_path / "nowhere" / "folder")
    assert (precious / "file").exists()


def test_files_in_folders_open_to_others_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RUNTIME_DIR", "CACHE"):
        (tmp_path / name).mkdir(mode=0o755)
        monkeypatch.setenv(f"LINKFLAP_{name}", str(tmp_path / name))
    before = os.umask(0)
    try:
        ledger.add_folder(tmp_path / "mine")
        cache.once("some/thing", lambda target: (target / "file").touch(), doing="making it")
    finally:
        os.umask(before)
    try:
        (entry,) = (tmp_path / "RUNTIME_DIR").glob("*.json")
        for path in (entry, tmp_path / "CACHE" / "some", tmp_path / "CACHE" / "some" / "thing"):
            assert path.stat().st_mode & 0o077 == 0, path
    finally:
        ledger.remove_folder(tmp_path / "mine")


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


MADE = {
    "a FIFO": _fifo,
    "a symbolic link": _link,
    "a folder": _folder,
    "a socket": _socket,
}


@pytest.mark.parametrize("what", MADE)
def test_only_regular_files_are_opened(tmp_path: Path, what: str) -> None:
    MADE[what](tmp_path / "x.log")
    with pytest.raises(OSError, match=f"is {what}, not a regular file"):
        untrusted_files.content(tmp_path / "x.log")
    with pytest.raises(OSError, match=f"is {what}, not a regular file"):
        untrusted_files.content(tmp_path / "x.log", root=tmp_path)
    segment, damage = map_segment(tmp_path / "x.log")
    assert not len(segment.data)
    assert [d.detail for d in damage] == [f"is {what}, not a regular file"]


def test_devices_and_loops_are_not_opened(tmp_path: Path) -> None:
    _loop(tmp_path / "loop")
    for path in (tmp_path / "loop", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            untrusted_files.content(path)


def test_no_folder_below_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("theirs")
    root = tmp_path / "root"
    root.mkdir()
    (root / "inside").symlink_to(tmp_path / "outside")
    assert untrusted_files.content(root / "inside" / "file") == b"theirs"
    for path in (root / "inside" / "file", root / ".." / "outside" / "file", root / "a\0b" / "c"):
        with pytest.raises(OSError, match=r"Not a directory|leads out|null byte"):
            untrusted_files.content(path, root=root)
    assert untrusted_files.listed(root, root / "inside") == []
    assert [*untrusted_files.special_entries(root)] == [("inside", untrusted_files.A_LINK)]


def test_the_root_itself_may_be_reached_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").write_text("ours")
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    latest = tmp_path / "latest"
    assert untrusted_files.content(latest / "file", root=latest) == b"ours"
    assert untrusted_files.listed(latest, latest) == [latest / "file"]


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert untrusted_files.content(tmp_path / "x", most=5) == b"12345"
    with pytest.raises(OSError, match="more than"):
        untrusted_files.content(tmp_path / "x", most=4)


def test_a_segment_larger_than_kafka_writes_is_not_looked_through(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.touch()
    os.truncate(path, LARGEST_FILE + 1)  # sparse
    segment, damage = map_segment(path)
    assert not len(segment.data)
    assert damage[0].kind == "unreadable-file"


def test_a_line_that_is_too_long_is_torn_and_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untrusted_files, "LONGEST_LINE", 8)
    path = tmp_path / "x"
    for content, expected in (
        (b"1\n2\n", [b"1\n", b"2\n"]),
        (b"1\n2", [b"1\n", b"2"]),
        (b"1\n" + b"x" * 30 + b"\n2\n", [b"1\n", b"x" * 8]),
        (b"1234567\n2\n", [b"1234567\n", b"2\n"]),
        (b"x" * 30, [b"x" * 8]),
    ):
        path.write_bytes(content)
        with untrusted_files.opened(path) as file:
            assert [*untrusted_files.lines(file)] == expected


@pytest.mark.parametrize(
    "document",
    [
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":"\xff"}',
        b'"\\ud800"',
        b"",
        b"9" * 10_000,
    ],
)
def test_document_nested_too_deeply_is_a_decode_error(document: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        untrusted_files.decoded(document, dict[str, int])

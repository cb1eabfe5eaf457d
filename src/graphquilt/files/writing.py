"""Write files atomically, lock folders, and explain errors of the disk."""

from __future__ import annotations

import contextlib
import errno
import glob
import json
import logging
import os
import re
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from graphquilt.errors import InputError, JobError

logger = logging.getLogger(__name__)

_PART = re.compile(r"\.(?P<host>[^/]+)\.(?P<pid>\d+)\.[0-9a-f]{16}\.part")  # what follows the name of the file itself
_locks: set[tuple[str, int]] = set()  # folder and thread of every lock that this process has
_BEHIND, _BYTES = 1 << 30, 1 << 16  # where the bytes are that Windows locks, and how many
_OLD = 86_400.0  # seconds; a part file that nobody has written to for so long is left over


@contextlib.contextmanager
def temporary_sibling(path: Path) -> Iterator[Path]:
    """Lend a name beside ``path`` that no other writer has, and leave nothing under it.

    Files of killed writers of ``path`` are removed first: their process no longer runs here, or they are a day old.
    """
    for other in path.parent.glob(f"{glob.escape(path.stem)}.*.part"):
        with contextlib.suppress(FileNotFoundError):  # another writer has removed it
            if _left_over(other, path.stem):
                other.unlink()
    part = path.with_name(f"{path.stem}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(8)}.part")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def _left_over(part: Path, stem: str) -> bool:
    name = _PART.fullmatch(part.name.removeprefix(stem))
    if name is None:
        return False
    old = time.time() - part.stat().st_mtime > _OLD
    return old or (name["host"] == socket.gethostname() and not _runs(int(name["pid"])))


def _runs(pid: int) -> bool:
    if os.name == "nt":  # there signal 0 would interrupt the process; what it left is removed after a day
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # it runs, but belongs to another user
    return True


def check_disk(folder: Path, needed: int, work: str) -> None:
    """Raise where the disk of ``folder``, which may not exist yet, has less than ``needed`` bytes left for ``work``."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise JobError(
            f"{work} needs {needed / 1e9:.3g} GB in {folder}, and its disk has {free / 1e9:.3g} GB left. Free "
            f"{(needed - free) / 1e9:.3g} GB, or choose a folder on another disk."
        )


def available_memory() -> float:
    """Return the bytes that are free: on the machine, or within the limit of its container."""
    available = float("inf")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":", 1) for line in meminfo.read_text(encoding="utf-8").splitlines() if ":" in line)
        available = float(fields["MemAvailable"].split()[0]) * 1024
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and (text := limit.read_text(encoding="utf-8").strip()) != "max":
        available = min(available, float(text) - float(used.read_text(encoding="utf-8")))
    return available


def check_memory(needed: float, content: str) -> None:
    """Raise before memory is allocated that is not there."""
    if needed > (available := available_memory()):
        raise InputError(
            f"{content} needs about {needed / 1e9:.1f} GB of memory, and {available / 1e9:.1f} GB are free. Build the "
            "graph out of core: graphquilt ingest --memory 1G, or build_csr in Python."
        )


def check_inside(path: Path, folder: Path) -> None:
    """Raise if a link makes ``path`` lead out of ``folder``: nothing is written anywhere else."""
    place = os.path.realpath(path)
    if not Path(place).is_relative_to(os.path.realpath(folder)):
        raise JobError(
            f"{path} leads out of {folder}, to {place}: there is a link on the way. Nothing is written there; put a "
            "folder in the place of the link, or name another folder."
        )


@contextlib.contextmanager
def atomic_file(path: Path, *, durable: bool = True, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a file to write, which appears under its name, complete, after the block; ``durable`` waits for the disk."""
    with temporary_sibling(path) as part:
        with open(part, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(part, path)


def write_text(path: Path, text: str, *, durable: bool = True) -> None:
    """Write a text file that is complete once it is there; ``durable`` waits for the disk."""
    with atomic_file(path, durable=durable) as file:
        file.write(f"{text}\n".encode())


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def translate_disk_errors(path: Path) -> Iterator[None]:
    """Turn an error of the disk into one sentence that says what to do."""
    try:
        yield
    except OSError as error:
        # NumPy reports a write that ran out of space in these words, without a number.
        short = error.errno is None and "requested and" in str(error)
        if short or error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            reason = "the disk is full (or the quota is used up). Free some space and run the same command again"
        elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
            reason = "it cannot be written to. Allow writing, or choose another folder"
        else:
            reason = f"{error.strerror or error}. Repair that and run the same command again"
        raise JobError(f"cannot write in {path}: {reason}; everything finished so far is intact.") from error


@contextlib.contextmanager
def folder_lock(path: str | os.PathLike[str], *, shard: str | None = None) -> Iterator[None]:
    """Lock a folder, which is made if needed, for this thread; a JobError names the process that has locked it.

    Different shards of a job may be worked on at the same time, but not the whole job beside any of them. The operating
    system keeps the lock, which ends with its process; the content of the file is for people. A thread that has locked
    a folder may lock it again.
    """
    folder = Path(path).absolute()
    own = (str(folder), threading.get_ident())
    if own in _locks:
        yield
        return
    with translate_disk_errors(folder):
        lock = _acquire(folder, shard)
    _locks.add(own)
    try:
        with lock:
            yield
    finally:
        _locks.discard(own)


def _acquire(folder: Path, shard: str | None) -> contextlib.ExitStack:
    names = [("lock", False)] if shard is None else [("lock", True), (f"lock.{shard}", False)]
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        for name, shared in names:
            handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
            stack.callback(os.close, handle)
            if not _lock(handle, shared=shared):
                os.lseek(handle, 0, os.SEEK_SET)
                owner = _owner(os.read(handle, 4096))
                advice = "Wait for it, stop it, or choose another folder."
                raise JobError(f"{folder} is being worked on by {owner}. {advice}")
            if not shared:  # nobody is at work when it ends, unless the process is killed
                stack.callback(os.ftruncate, handle, 0)
            this = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            os.ftruncate(handle, 0)
            os.lseek(handle, 0, os.SEEK_SET)
            os.write(handle, json.dumps(this).encode())
        return stack.pop_all()


def _lock(handle: int, *, shared: bool) -> bool:
    """Lock an open file for this process, alone or beside others that share it; return whether that was possible."""
    try:
        import fcntl
    except ImportError:
        return _lock_bytes(handle, shared=shared)
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_bytes(handle: int, *, shared: bool) -> bool:
    """Do so where locks are of bytes and never shared: who shares the file locks one byte, who wants it alone all."""
    import msvcrt

    first, count = (secrets.randbelow(_BYTES), 1) if shared else (0, _BYTES)
    os.lseek(handle, _BEHIND + first, os.SEEK_SET)
    try:
        msvcrt.locking(handle, msvcrt.LK_NBLCK, count)  # type: ignore[attr-defined,unused-ignore]
    except OSError:
        return False
    return True


def lock_holders(folder: Path | None) -> set[str]:
    """Return host and process of every run that has locked a folder or a shard of it, without touching the locks."""
    holders = set()
    for path in [] if folder is None else folder.glob("lock*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            owner = json.loads(path.read_bytes()[:4096])
            if owner["host"] != socket.gethostname() or _runs(int(owner["pid"])):
                holders.add(f"{owner['host']}:{owner['pid']}")
    return holders


def _owner(content: bytes) -> str:
    try:
        owner = json.loads(content)
        return f"process {owner['pid']} on {owner['host']}, since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        return "another process"

"""A lock, so that only one run works on a folder (a job, or the state of a watcher) at a time."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from graphquilt.errors import JobError
from graphquilt.files.writing import translate_disk_errors

__all__ = ["folder_lock"]

_locks: set[tuple[str, int]] = set()  # folder and thread of every lock that this process has


@contextlib.contextmanager
def folder_lock(path: str | os.PathLike[str], *, share: str | None = None, wait: bool = False) -> Iterator[None]:
    """Lock a folder for this thread, so that two runs do not work on it at once.

    Parameters
    ----------
    path : path
        It is created if it does not exist.
    share : str, optional
        The name of the share of a job that is worked on. Different shares may be worked on at the same time, but the
        whole job may not be worked on beside any of them.
    wait : bool
        Wait until the other run has gone, instead of raising an error.

    Raises
    ------
    JobError
        Another run has locked it; the message names its process and host.

    Notes
    -----
    The operating system keeps the lock (``flock``), so that it ends with its process, however that ends. The content of
    the file is only for people to read. A thread that has locked a folder may lock it again.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with folder_lock(folder), folder_lock(folder):
    ...     sorted(os.listdir(folder))
    ['lock']
    """
    folder = Path(path).absolute()
    own = (str(folder), threading.get_ident())
    if own in _locks:
        yield
        return
    with translate_disk_errors(folder):
        lock = _acquire(folder, share, wait=wait)
    _locks.add(own)
    try:
        with lock:
            yield
    finally:
        _locks.discard(own)


def _acquire(folder: Path, share: str | None, *, wait: bool) -> contextlib.ExitStack:
    import fcntl

    names = [("lock", fcntl.LOCK_EX)]
    if share is not None:
        names = [("lock", fcntl.LOCK_SH), (f"lock.{share}", fcntl.LOCK_EX)]
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        for name, kind in names:
            handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, kind if wait else kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JobError(_being_worked_on(folder, os.pread(handle, 4096, 0))) from None
            owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(owner).encode(), 0)
        return stack.pop_all()


def _being_worked_on(folder: Path, content: bytes) -> str:
    try:
        owner = json.loads(content)
        who = f"process {owner['pid']} on {owner['host']}, since {owner['since']}"
    except (ValueError, KeyError, TypeError):
        who = "another process"
    return f"{folder} is being worked on by {who}. Wait for it, stop it, or choose another folder."

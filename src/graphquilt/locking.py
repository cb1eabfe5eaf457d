"""One run at a time on a job."""

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
from graphquilt.files import explained

__all__ = ["job_lock"]

_held: set[tuple[str, int]] = set()  # folder and thread of every lock that this process holds


@contextlib.contextmanager
def job_lock(path: str | os.PathLike[str], *, share: str | None = None) -> Iterator[None]:
    """Hold a job for this thread, so that two runs do not work on it at once.

    Parameters
    ----------
    path : path
        The job's folder.
    share : str, optional
        The name of the share of the job that is worked on: runs of different shares may go on at once, a whole run
        beside any of them may not.

    Raises
    ------
    JobError
        Another run holds it; the message has its process id and host.

    Notes
    -----
    The lock is the kernel's (``flock``): it ends with its process, however that ends. The file's content is only for
    people to read. A thread that holds a job may ask for it again.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with job_lock(folder), job_lock(folder):
    ...     sorted(os.listdir(folder))
    ['lock']
    """
    folder = Path(path).absolute()
    mine = (str(folder), threading.get_ident())
    if mine in _held:
        yield
        return
    with explained(folder):
        holder = _acquire(folder, share)
    _held.add(mine)
    try:
        with holder:
            yield
    finally:
        _held.discard(mine)


def _acquire(folder: Path, share: str | None) -> contextlib.ExitStack:
    import fcntl

    names = [("lock", fcntl.LOCK_EX)]
    if share is not None:
        names = [("lock", fcntl.LOCK_SH), (f"lock.{share}", fcntl.LOCK_EX)]
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        for name, kind in names:
            handle = os.open(folder / name, os.O_RDWR | os.O_CREAT, 0o644)
            stack.callback(os.close, handle)
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise JobError(_who_holds(folder, os.pread(handle, 4096, 0))) from None
            said = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(said).encode(), 0)
        return stack.pop_all()


def _who_holds(folder: Path, content: bytes) -> str:
    try:
        said = json.loads(content)
        who = f"process {said['pid']} on {said['host']}, since {said['since']}"
    except (ValueError, KeyError, TypeError):
        who = "another process"
    return f"{folder} is being worked on by {who}. Wait for it, stop it, or choose another folder."

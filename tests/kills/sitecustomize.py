"""Count the operations on files in one folder, and kill a process at one of them.

Python imports this module in every process that ``tests/chaos.py`` starts, because its folder is in ``PYTHONPATH``:
in commands, in their workers and in those of Dask. It does nothing unless the variable ``GRAPHQUILT_CHAOS`` has a plan,
which is a JSON object:

``folder``
    Operations on files in this folder count: writes, flushes to the disk, renames, removals, new files and folders.
``log``
    A file that gets one line for each operation, with time, role and name; or null.
``at``, ``role``, ``when``
    Kill at this operation of a process with this role, ``driver`` or ``worker``: ``before`` it, ``after`` it, or in the
    middle (``half``), after a write of the first half of the bytes. ``at`` is null for no kill.
``victim``
    Who is killed: ``self``, the ``group`` of processes, or the process with this number.
``token``
    A file that the kill creates, so that there is only one.
"""

import builtins
import io
import itertools
import json
import os
import signal
import sys
import time

_PLAN = "GRAPHQUILT_CHAOS"
_PATHS = ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "link", "symlink", "truncate")
_HANDLES = ("fsync", "ftruncate", "pwrite")
_real = {name: getattr(os, name) for name in (*_PATHS, *_HANDLES, "open")}
_plan = {}
_counts = {}  # the operations so far, by the number of the process, because forks count anew


def arm():
    """Begin to count, in the process that this is called in and in those that it starts."""
    _plan.update(json.loads(os.environ[_PLAN]))
    if "driver" not in _plan:
        _plan["driver"] = os.getpid()
        os.environ[_PLAN] = json.dumps(_plan)
    for name in _PATHS:
        setattr(os, name, _counted(name, _of_path))
    for name in _HANDLES:
        setattr(os, name, _counted(name, lambda handle, *_, **__: _of_handle(handle)))
    os.open = _counted("open", lambda path, flags, *_, **__: _of_path(path) if flags & os.O_CREAT else None)
    builtins.open = io.open = _open
    if _is_inside(_of_handle(1)):
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(_File(1, "wb", closefd=False)), encoding="utf-8")


def _of_path(path, *_, dir_fd=None, **__):
    if isinstance(path, int):
        return _of_handle(path)
    folder = os.getcwd() if dir_fd is None else _of_handle(dir_fd)
    return os.path.join(folder or "", os.fsdecode(path))


def _of_handle(handle):
    try:
        return os.readlink(f"/proc/self/fd/{handle if isinstance(handle, int) else handle.fileno()}")
    except OSError:
        return None


def _is_inside(path):
    return path is not None and path.startswith(_plan["folder"] + os.sep)


def _counted(name, place):
    real = _real[name]

    def operation(*words, **options):
        return _operate(name, place(*words, **options), lambda: real(*words, **options))

    return operation


def _operate(name, path, act, half=None):
    """Do something to a file, unless this is the operation at which something is killed first."""
    if not _is_inside(path):
        return act()
    number = next(_counts.setdefault(os.getpid(), itertools.count(1)))
    role = "driver" if os.getpid() == _plan["driver"] else "worker"
    if _plan["log"]:
        handle = _real["open"](_plan["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(handle, f"{time.time()} {role} {number} {name} {path}\n".encode())
        os.close(handle)
    if number != _plan["at"] or role != _plan["role"] or not _claim():
        return act()
    if _plan["when"] == "half" and half is not None:
        half()
    elif _plan["when"] == "after":
        try:
            return act()
        finally:
            _kill()
    _kill()
    return act()


def _claim():
    try:
        os.close(_real["open"](_plan["token"], os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    except FileExistsError:
        return False
    return True


def _kill():
    if _plan["victim"] == "group":
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid() if _plan["victim"] == "self" else _plan["victim"], signal.SIGKILL)


class _File(io.FileIO):
    """A file whose writes count."""

    def write(self, data):
        def half():
            io.FileIO.write(self, memoryview(data)[: len(memoryview(data)) // 2])

        return _operate("write", _of_handle(self.fileno()), lambda: io.FileIO.write(self, data), half)

    def truncate(self, size=None):
        return _operate("truncate", _of_handle(self.fileno()), lambda: io.FileIO.truncate(self, size))


_real_open = io.open


def _open(file, mode="r", *words, **options):
    """Open a file as the function of the same name does; one in the folder that can be written to counts."""
    if not set(mode) & set("wax+") or isinstance(file, int) or not _is_inside(_of_path(file)):
        return _real_open(file, mode, *words, **options)
    options |= dict(zip(("buffering", "encoding", "errors", "newline", "closefd", "opener"), words, strict=False))
    plain = mode.replace("b", "").replace("t", "")
    raw = _operate("create", _of_path(file), lambda: _File(file, plain, opener=options.get("opener")))
    binary = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    text = {name: options.get(name) for name in ("encoding", "errors", "newline")}
    return binary if "b" in mode else io.TextIOWrapper(binary, **text)


if _PLAN in os.environ:
    arm()

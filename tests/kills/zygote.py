"""Start commands of graphquilt in processes that are forked from this one, which has imported everything already.

``tests/chaos.py`` writes one JSON object per line and reads one back: ``start`` gives the number of a process, ``wait``
gives how a process has ended, or null if it still runs. Each process has a group of its own.
"""

import json
import os
import resource
import sys
import time
import traceback

import psutil
import sitecustomize


def start(words, *, stdout, stderr, plan=None, limits=()):
    """Fork a process that runs a command; return its number."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        for handle, path, flags in ((0, "/dev/null", os.O_RDONLY), (1, stdout, append), (2, stderr, append)):
            os.dup2(os.open(path, flags, 0o644), handle)
        for name, more in limits:
            used = psutil.Process().memory_info().vms if name == "AS" else 0
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (used + more, used + more))
        if plan is not None:
            os.environ["GRAPHQUILT_CHAOS"] = json.dumps(plan)
            sitecustomize.arm()
        sys.argv = ["graphquilt", *words]
        from graphquilt.cli import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
        finally:
            os._exit(code)


def wait(pid, seconds):
    """Return the exit code of a process, or minus the signal that has killed it; None if it runs for longer."""
    end = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            return None
        time.sleep(0.005)


def serve(modules):
    """Import the modules, and do what the lines of standard input ask for."""
    for name in modules:
        __import__(name)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({"start": start, "wait": wait}[request.pop("do")](**request)), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1:])

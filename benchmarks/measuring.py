"""How every benchmark measures: CPU seconds, peak memory, and one fresh process a row."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any


class PeakMemory:
    """Anonymous resident memory above the level at the start, sampled every 20 ms; mapped files do not count."""

    def __enter__(self):
        self.base = self.peak = self._now()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _watch(self):
        while not self._stop.wait(0.02):
            self.peak = max(self.peak, self._now())

    @staticmethod
    def _now():
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) * 1024
        return 0

    @property
    def gib(self):
        """The peak in GiB."""
        return (self.peak - self.base) / 2**30


def least(function, runs=1):
    """Return the CPU seconds of the quickest of ``runs`` calls, and the last answer."""
    best = float("inf")
    for _ in range(runs):
        start = time.process_time()
        answer = function()
        best = min(best, time.process_time() - start)
    return best, answer


def alone(script: str, kind: str, row: Any, *, threads: int = 1) -> dict[str, Any]:
    """Run ``script --kind KIND --row ROW`` in a fresh process with that many BLAS threads; return what it prints."""
    environment = os.environ | {name: str(threads) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    command = [sys.executable, script, "--kind", kind, "--row", json.dumps(row)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(done.stdout.strip().splitlines()[-1])
    print(kind, result, flush=True)
    return result


def machine() -> str:
    """Return one line about where the figures were taken."""
    import numpy as np

    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}"

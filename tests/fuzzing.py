"""Feed changed files to every reader of graphquilt: each ends in a result or in one of graphquilt's own errors.

Anything else has escaped: another exception, a process that died, more than 10 seconds of work, more than 6 GB of
memory, or a result that is not one. Edges in text that were accepted must give the same graph with their rows in
another order, packed or not, out of core, and written again in every format. The input is then kept, with the line that
reads it again. Everything follows from the seed, so that the same version escapes on the same inputs. At the end, error
paths are timed on files of n and 2n rows.

::

    make fuzz SECONDS=600 INPUTS=200000 SEED=1
    python tests/fuzzing.py --seconds 60 --reader "edges in text"
    python tests/fuzzing.py --again fuzz-escapes/edges-in-text-1-377
"""

import argparse
import contextlib
import functools
import json
import logging
import multiprocessing
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from importlib.util import find_spec
from multiprocessing.connection import wait
from pathlib import Path

import psutil

sys.path.append(str(Path(__file__).parents[1]))  # for the readers of studies, in worker processes too

from accepted import growth
from fuzzed_readers import READERS
from mutations import mutated

MEMORY = 6 << 30  # bytes of addresses that a reader may have
PATIENCE = 10.0  # seconds of work on one input; all of them are small
STARTING = 300.0  # seconds in which a worker begins and compiles
MOST_GROWTH = 3.0  # of the time of an error path when its file is twice as long
CHUNK = 50  # inputs that a worker gets at once
ACCEPTED, REFUSED, ESCAPED = "accepted", "refused", "escaped"


@dataclass
class Tally:
    """What became of the inputs of one reader."""

    tried: int = 0
    accepted: int = 0
    refused: int = 0
    escaped: int = 0
    slowest: float = 0.0  # seconds
    seconds: float = 0.0
    escapes: list[str] = field(default_factory=list)


class Subject:
    """A reader and its valid files in a folder, in which one file after another is changed and put back."""

    def __init__(self, name, root):
        self.reader = READERS[name]
        self.folder = Path(root, "files")
        self.folder.mkdir(parents=True)
        self.reader.make(self.folder)
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        self.valid = {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}

    def check(self):
        """Read some of the valid files: nothing may be refused, and kernels are compiled."""
        for name in list(self.valid)[:6]:
            self.reader.read(self.folder, self.folder / name)

    def input(self, seed, number):
        """Return the changed files of one input, and the one that is read."""
        rng = random.Random(f"{seed}/{self.reader.name}/{number}")
        files = dict(self.valid)
        names = rng.choices(list(files), k=rng.choice((1, 1, 1, 2)))
        for name in names:
            files[name] = mutated(name, files[name], rng)
        if self.reader.seal is not None and rng.random() < 0.6:
            self.reader.seal(files)
        return {name: content for name, content in files.items() if content != self.valid[name]}, names[0]

    def attempt(self, files, name):
        """Read changed files; return the outcome, the seconds it took, and the error."""
        from graphquilt.errors import QuiltError

        for path, content in files.items():
            (self.folder / path).write_bytes(content)
        outcome, problem = ACCEPTED, ""
        start = time.perf_counter()
        try:
            self.reader.read(self.folder, self.folder / name)
        except QuiltError:
            outcome = REFUSED
        except BaseException:
            outcome, problem = ESCAPED, traceback.format_exc(limit=-8)
        seconds = time.perf_counter() - start
        for path in files:
            (self.folder / path).write_bytes(self.valid[path])
        return outcome, seconds, problem


def _work(pipe, root):
    """Take ranges of inputs of readers from the pipe, try each, and send what became of it."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    os.chdir(root)
    subjects = {}
    with contextlib.suppress(EOFError):
        while True:
            name, seed, first, last = pipe.recv()
            if name not in subjects:
                resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.RLIM_INFINITY))
                subjects[name] = Subject(name, Path(root, name))
                subjects[name].check()
            pipe.send(None)
            for number in range(first, last):
                pipe.send((number, *subjects[name].attempt(*subjects[name].input(seed, number))))


class Worker:
    """A process that tries inputs, and what it is doing."""

    def __init__(self, root):
        self.root = Path(tempfile.mkdtemp(dir=root))
        context = multiprocessing.get_context("spawn")
        self.pipe, end = context.Pipe()
        self.process = context.Process(target=_work, args=(end, str(self.root)), daemon=True)
        self.process.start()
        end.close()
        self.task = None

    def begin(self, name, seed, first, last):
        self.task, self.number, self.ready = (name, seed, last), first, False
        self._note()
        self.pipe.send((name, seed, first, last))

    def receive(self):
        """Return what became of the next input, or None where the worker has only got ready; EOFError if it died."""
        try:
            message = self.pipe.recv()
        except ConnectionResetError as error:
            raise EOFError from error
        self._note()
        if message is None:
            self.ready = True
            return None
        self.number = message[0] + 1
        return message

    def _note(self):
        self.since, self.busy = time.monotonic(), self._busy()

    def _busy(self):
        try:
            times = psutil.Process(self.process.pid).cpu_times()
            return times.user + times.system
        except psutil.Error:
            return 0.0

    def hangs(self):
        """Whether the input has taken too long: in seconds of work, because the machine may be busy elsewhere."""
        waited = time.monotonic() - self.since
        if not self.ready:
            return waited > STARTING
        return waited > PATIENCE and (self._busy() - self.busy > PATIENCE or waited > 6 * PATIENCE)

    def successor(self):
        """Return a new worker in the place of one that has died."""
        self.stop()
        return Worker(self.root.parent)

    def stop(self):
        self.process.kill()
        self.process.join()
        self.pipe.close()
        shutil.rmtree(self.root, ignore_errors=True)


def fuzz(names, *, inputs, seed=0, seconds=float("inf"), workers=1, keep=None):
    """Try inputs of the named readers, shared among them; return one Tally for each.

    ``keep`` is a folder for inputs that escape.
    """
    tallies = {name: Tally() for name in names}
    total = sum(READERS[name].share for name in names)
    chunks = [
        (first / count, name, first, min(first + CHUNK, count))
        for name in names
        if (count := max(1, round(inputs * READERS[name].share / total)))
        for first in range(0, count, CHUNK)
    ]
    tasks = [(name, seed, first, last) for _, name, first, last in sorted(chunks, reverse=True)]  # the last is next
    end = time.monotonic() + seconds
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory, prefix="graphquilt-fuzz-") as root:
        crew = [Worker(root) for _ in range(workers)]
        try:
            while True:
                crew = [worker if worker.task or worker.process.is_alive() else worker.successor() for worker in crew]
                for worker in crew:
                    _take_results(worker, tallies, keep)
                    if worker.task is not None and worker.process.exitcode is not None:
                        _take_results(worker, tallies, keep)
                        _died(worker, tasks, tallies, keep, f"the process died, {worker.process.exitcode}")
                    elif worker.task is not None and worker.hangs():
                        _died(worker, tasks, tallies, keep, f"it took more than {PATIENCE:.0f} seconds")
                    if worker.task is None and worker.process.is_alive() and tasks and time.monotonic() < end:
                        worker.begin(*tasks.pop())
                if all(worker.task is None for worker in crew) and not (tasks and time.monotonic() < end):
                    return tallies
                wait([worker.pipe for worker in crew if worker.task is not None], timeout=0.2)
        finally:
            for worker in crew:
                worker.stop()


def _take_results(worker, tallies, keep):
    with contextlib.suppress(EOFError):
        while worker.task is not None and worker.pipe.poll():
            result = worker.receive()
            if result is not None:
                _count(tallies, worker.task, result, keep)
                if worker.number == worker.task[2]:
                    worker.task = None


def _died(worker, tasks, tallies, keep, problem):
    if worker.task is None:
        return
    name, seed, last = worker.task
    worker.process.kill()
    worker.process.join()
    if not worker.ready:
        raise RuntimeError(f"{name}: its valid files cannot be read; {problem}")
    _count(tallies, worker.task, (worker.number, ESCAPED, time.monotonic() - worker.since, problem), keep)
    if worker.number + 1 < last:
        tasks.append((name, seed, worker.number + 1, last))
    worker.task = None


def _count(tallies, task, result, keep):
    name, seed, _ = task
    number, outcome, seconds, problem = result
    tally = tallies[name]
    tally.tried += 1
    tally.seconds += seconds
    tally.slowest = max(tally.slowest, seconds)
    setattr(tally, outcome, getattr(tally, outcome) + 1)
    if outcome == ESCAPED:
        tally.escapes.append(f"{name}, seed {seed}, input {number}: {problem}")
        if keep is not None and tally.escaped <= 50:
            _keep(Path(keep), name, seed, number, problem)


def _keep(folder, name, seed, number, problem):
    """Write the whole input, and how to read it again."""
    target = folder / f"{name.replace(' ', '-')}-{seed}-{number}"
    shutil.rmtree(target, ignore_errors=True)
    subject = _subject(name)
    files, changed = subject.input(seed, number)
    for path, content in {**subject.valid, **files}.items():
        (target / "files" / path).parent.mkdir(parents=True, exist_ok=True)
        (target / "files" / path).write_bytes(content)
    note = {"reader": name, "seed": seed, "number": number, "changed": sorted(files), "read": changed}
    note |= {"again": f"python tests/fuzzing.py --again {target}", "problem": problem.splitlines()}
    (target / "escape.json").write_text(json.dumps(note, indent=1) + "\n", encoding="utf-8")


@functools.cache
def _subject(name):
    with tempfile.TemporaryDirectory() as root:
        return Subject(name, root)


def read_again(folder):
    """Read an input that was kept, in this process."""
    note = json.loads(Path(folder, "escape.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as root:
        files = Path(root, "files")
        shutil.copytree(Path(folder, "files"), files)
        READERS[note["reader"]].read(files, files / note["read"])


def available(names=tuple(READERS)):
    """Return the readers whose packages are installed."""
    return [name for name in names if READERS[name].package is None or find_spec(READERS[name].package)]


def table(tallies):
    """Return the counts as a table."""
    lines = [f"{'reader':<26}{'tried':>9}{'accepted':>10}{'refused':>9}{'escaped':>9}{'slowest':>10}{'mean':>10}"]
    rows = list(tallies.items())
    whole = Tally(*(sum(getattr(t, name) for t in tallies.values()) for name in ("tried", ACCEPTED, REFUSED, ESCAPED)))
    whole.slowest, whole.seconds = max(t.slowest for t in tallies.values()), sum(t.seconds for t in tallies.values())
    for name, t in [*rows, ("all", whole)]:
        mean = 1e3 * t.seconds / max(t.tried, 1)
        counts = f"{t.tried:>9}{t.accepted:>10}{t.refused:>9}{t.escaped:>9}"
        lines.append(f"{name:<26}{counts}{t.slowest:>8.2f} s{mean:>7.1f} ms")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--reader", action="append", choices=list(READERS), help="only this reader; may be repeated")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-escapes"), help="where inputs that escape are kept")
    parser.add_argument("--again", type=Path, help="read an input that was kept, and do nothing else")
    options = parser.parse_args()
    if options.again is not None:
        read_again(options.again)
        return
    tallies = fuzz(
        available(options.reader or tuple(READERS)),
        inputs=options.inputs,
        seed=options.seed,
        seconds=options.seconds,
        workers=options.workers,
        keep=options.keep,
    )
    print(table(tallies))
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        factors = growth(Path(folder))
    print("error paths, time at 2n over time at n: " + ", ".join(f"{name} {f:.1f}" for name, f in factors.items()))
    if steep := [name for name, factor in factors.items() if factor > MOST_GROWTH]:
        sys.exit(f"more than linear: {', '.join(steep)}")
    escaped = sum(tally.escaped for tally in tallies.values())
    if escaped:
        print(f"{escaped} inputs escaped; {options.keep} has them, each with the line that reads it again.")
        sys.exit(1)


if __name__ == "__main__":
    main()

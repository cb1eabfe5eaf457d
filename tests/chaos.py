"""Kill commands of graphquilt at random operations on files and at random times: nothing is lost, and no bit differs.

Each case has commands and a result. A run without a kill gives the expected bits and the number of operations on files.
Then a process is killed: the driver, a worker, their group, a Dask worker or scheduler. The command is run again, and
may be killed again; when it has finished, its result is compared. Circumstances are tried in the same way: a full
disk, little memory, few open files, times in the future, links. Everything but the moments of kills at random times
follows from the seed.

::

    make chaos KILLS=200 SEED=1 SECONDS=1200
    python tests/chaos.py --kills 20 --case "watch"
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import psutil

ROOT = Path(__file__).parents[1]
PATIENCE = 300.0  # seconds until a command that should have ended is taken for one that hangs
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # of kills at random times
BY_TIME = 0.4  # share of kills at random times; the others are at operations on files
MOST_KILLS = 3  # in a row, before a command may finish
YEARS = 10 * 365 * 86_400  # seconds


@dataclass
class Tally:
    """What became of the kills of one case, or of the tries of one circumstance."""

    tried: int = 0
    held: int = 0
    failed: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Case:
    """Commands to kill.

    ``prepare`` and the commands ``before`` make what a run begins from in a folder. ``killed`` are the commands that
    are killed, side by side; ``after`` runs when they have finished. Words may name the ``{folder}``. ``roles`` says
    who is killed, and ``package`` what must be installed.
    """

    name: str
    prepare: Callable[[Path], None]
    killed: tuple[str, ...]
    result: Callable[[Path], dict[str, bytes]]
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    roles: tuple[str, ...] = ("driver",)
    share: int = 10
    package: str | None = None
    short: bool = False  # whether the short form of the harness has it


class ChaosError(Exception):
    """A command did not end as it must, or its result has other bits."""


# What the commands begin from


def torus(rows, columns):
    """Return the edges of a torus."""
    node = np.arange(rows * columns).reshape(rows, columns)
    return np.concatenate([np.stack([node, np.roll(node, 1, axis)]).reshape(2, -1) for axis in (0, 1)], axis=1)


def write_edges(folder, shape=(12, 20)):
    """Write a torus, and features of its nodes."""
    np.save(folder / "edges.npy", torus(*shape).T)
    X = np.random.default_rng(0).standard_normal((shape[0] * shape[1], 6)).astype(np.float32)
    np.save(folder / "x.npy", X)


def write_large_edges(folder):
    """Write edges that an out-of-core build reads in several batches and sorts in several buckets."""
    rng = np.random.default_rng(1)
    np.save(folder / "edges.npy", rng.integers(0, 20_000, (2, 300_000)))
    np.save(folder / "x.npy", rng.standard_normal((20_000, 3)).astype(np.float32))


def write_flows(folder):
    """Write the traffic of some days, one file per day."""
    from graphquilt.temporal.traffic import netflow

    (folder / "inbox").mkdir()
    netflow(60, 300, 14, campaigns=1, seed=6).write(folder / "inbox")
    (folder / "inbox" / "truth.csv").unlink()


# What the commands make


def arrays_in(folder, *names):
    """Return the bytes of files, by their names."""
    return {name: (folder / name).read_bytes() for name in names}


def embedding(folder):
    return arrays_in(folder / "job", "embedding.npy", "alignment.npz", "patch_graph.npz")


def graph_folder(folder):
    names = sorted(path.name for path in (folder / "graph").iterdir())
    return arrays_in(folder / "graph", *names)


def alerts(folder):
    """Return the alerts by their ids, and the arrays of the state.

    Lines that a kill has cut short are no JSON and are skipped. The shape of a window in the state is left out: it
    counts the names that had been read by then, and some of those may be names of the next window.
    """
    from graphquilt.files import load_arrays

    lines = {}
    for text in (folder / "out").read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(ValueError):
            alert = json.loads(text)["id"]
            if lines.setdefault(alert, text) != text:
                raise ChaosError(f"the alert {alert} was printed twice with different content")
    state = load_arrays(folder / "state" / "state.npz")
    header = json.loads(state["header"].tobytes())
    for record in header["notes"]["files"]:
        record[:] = [Path(record[0]).name, *record[3:6], record[9]]  # the rest differs from run to run
    state["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    arrays = {name: values.tobytes() for name, values in state.items() if not name.endswith((".shape", ".indptr"))}
    return {"alerts": json.dumps(sorted(lines.items())).encode(), **arrays}


CUT = "--dim 3 --patches 5 --seed 4"
EMBED_ALL = f"embed {{folder}}/edges.npy --features {{folder}}/x.npy {CUT} --out {{folder}}/job"
VGAE = "-e vgae --set max_epochs=5"
CUTTING = EMBED_ALL.replace("embed", "cut", 1)
EMBED_PATCHES = "embed-patches {folder}/job"
STITCH = "stitch {folder}/job --workers 1"
WATCH = "watch {folder}/inbox --state {folder}/state --idle 0 --dim 3 --lags 1,7 --min-observations 5 --quantile 0.99"
BUILD = "ingest {folder}/edges.npy {folder}/graph --features {folder}/x.npy"

CASES = {
    case.name: case
    for case in (
        Case("embed, shared start", write_edges, (f"{EMBED_ALL} --workers 1",), embedding, share=25, short=True),
        Case("embed, SVD", write_edges, (f"{EMBED_ALL} -e svd --workers 1",), embedding, share=20),
        Case("embed, VGAE", write_edges, (f"{EMBED_ALL} {VGAE} --workers 1",), embedding, share=20, package="torch"),
        Case(
            "embed, two workers",
            write_edges,
            (f"{EMBED_ALL} --workers 2",),
            embedding,
            roles=("worker", "group"),
            share=30,
        ),
        Case(
            "embed-patches", write_edges, (f"{EMBED_PATCHES} --workers 1",), embedding, (CUTTING,), (STITCH,), share=15
        ),
        Case(
            "embed-patches, shards",
            write_edges,
            (f"{EMBED_PATCHES} --shard 1/2 --workers 1", f"{EMBED_PATCHES} --shard 2/2 --workers 1"),
            embedding,
            (CUTTING,),
            (STITCH,),
            share=15,
        ),
        Case("stitch", write_edges, (STITCH,), embedding, (CUTTING, f"{EMBED_PATCHES} --workers 1"), share=10),
        Case("watch", write_flows, (WATCH,), alerts, share=25, short=True),
        Case(
            "ingest, out of core",
            write_large_edges,
            (f"{BUILD} --memory 16M --copy-features",),
            graph_folder,
            share=25,
            short=True,
        ),
        Case("ingest, in memory", write_edges, (BUILD,), graph_folder, share=10),
        Case(
            "embed-patches, Dask worker",
            write_edges,
            (f"{EMBED_PATCHES} --dask {{dask}}",),
            embedding,
            (CUTTING,),
            (STITCH,),
            roles=("dask worker",),
            share=10,
            package="distributed",
        ),
        Case(
            "embed-patches, Dask scheduler",
            write_edges,
            (f"{EMBED_PATCHES} --dask {{dask}}",),
            embedding,
            (CUTTING,),
            (STITCH,),
            roles=("dask scheduler",),
            share=10,
            package="distributed",
        ),
    )
}


# Processes


def environment(**more):
    path = os.pathsep.join([str(Path(__file__).parent / "kills"), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | more


class Zygote:
    """A process with everything imported, of which commands are forks, so that each begins at once."""

    def __init__(self, modules):
        script = Path(__file__).parent / "kills" / "zygote.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script), *modules],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def start(self, words, folder, **options):
        """Start a command whose output goes to ``out`` and ``err`` in the folder."""
        words = words.format(folder=folder).split() if isinstance(words, str) else words
        streams = {"stdout": str(folder / "out"), "stderr": str(folder / "err")}
        return self.ask(do="start", words=words, **streams, **options)

    def wait(self, pid, seconds=PATIENCE):
        """Return the exit code of a command."""
        code = self.ask(do="wait", pid=pid, seconds=seconds)
        if code is None and seconds == PATIENCE:
            os.killpg(pid, signal.SIGKILL)
            self.ask(do="wait", pid=pid, seconds=PATIENCE)
            raise ChaosError(f"the command did not end within {PATIENCE:.0f} seconds")
        return code

    def call(self, words, folder, **options):
        """Run a command to its end; return its exit code and what it said on standard error."""
        (folder / "err").unlink(missing_ok=True)
        code = self.wait(self.start(words, folder, **options))
        return code, (folder / "err").read_text(errors="replace")

    def finish(self, words, folder, **options):
        """Run a command that has to succeed."""
        code, said = self.call(words, folder, **options)
        if code != 0:
            raise ChaosError(f"graphquilt {words} ended with {code}: {said[-2000:]}")

    def stop(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class Cluster:
    """A Dask scheduler and workers that listen on this machine only."""

    def __init__(self, folder):
        self.folder, self.crew = folder, []
        self.file = folder / f"scheduler-{time.monotonic_ns()}.json"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", self.file)

    @property
    def address(self):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with contextlib.suppress(OSError, ValueError):
                return json.loads(self.file.read_text())["address"]
            time.sleep(0.05)
        raise ChaosError("the Dask scheduler has not started")

    def add(self, plan=None):
        """Start a worker, and wait until the scheduler knows it."""
        more = {} if plan is None else {"GRAPHQUILT_CHAOS": json.dumps(plan)}
        options = ["--nthreads", "1", "--no-nanny", "--host", "127.0.0.1"]
        worker = self._start("worker", self.address, *options, "--local-directory", self.folder, **more)
        self.crew = [process for process in self.crew if process.poll() is None] + [worker]
        from distributed import Client

        with Client(self.address, set_as_default=False, timeout=PATIENCE) as client:
            client.wait_for_workers(len(self.crew), timeout=PATIENCE)
        return worker

    def _start(self, kind, *words, **more):
        command = [sys.executable, "-m", f"distributed.cli.dask_{kind}", *map(str, words), "--no-dashboard"]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment(**more),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def stop(self):
        for process in (*self.crew, self.scheduler):
            process.kill()
            process.wait()


# Kills


class Killer:
    """Kills the commands of one case, and compares their results."""

    def __init__(self, case, zygote, root, seed):
        self.case, self.zygote, self.root = case, zygote, root
        self.rng = random.Random(f"{seed}/{case.name}")
        self.template, self.tally = root / "template", Tally()
        self.template.mkdir(parents=True)
        case.prepare(self.template)
        for words in case.before:
            zygote.finish(words, self.template)
        self.cluster = None
        self._measure()

    def _measure(self):
        """Run the commands without a kill, for the expected result and the operations that there are."""
        folder, log = self.begin(), self.root / "log"
        plan = self._plan(folder, log=str(log))
        starts = time.time()
        for words in self.case.killed:
            self.zygote.finish(words.replace("--dask {dask}", "--workers 2"), folder, plan=plan)
        lines = [line.split(maxsplit=3) for line in log.read_text().splitlines()]
        times = [float(line[0]) - starts for line in lines]
        self.span = (min(times), max(times))
        self.operations = {
            role: max((int(number) for _, who, number, _ in lines if who == role), default=1)
            for role in ("driver", "worker")
        }
        self._end(folder)
        self.expected = self.case.result(folder)

    def begin(self):
        """Return a new folder with what a run begins from."""
        folder = self.root / "work"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.template, folder, symlinks=True)
        return folder

    def _end(self, folder):
        for words in self.case.after:
            self.zygote.finish(words, folder)

    def _plan(self, folder, **changes):
        plan = {"folder": str(folder), "log": None, "at": None, "role": "driver", "when": "before", "victim": "self"}
        return plan | {"token": str(self.root / "token")} | changes

    def _draw(self, folder, role, earlier=0):
        """Draw an operation at which a process is killed; after ``earlier`` kills there is less left to do."""
        (self.root / "token").unlink(missing_ok=True)
        who = "driver" if role == "driver" else "worker"
        if role == "group":
            who = self.rng.choice(("driver", "worker"))
        at = self.rng.randint(1, -(-self.operations[who] // (1 + earlier)))
        when = self.rng.choice(("before", "after", "half"))
        return self._plan(folder, at=at, role=who, when=when, victim="group" if role == "group" else "self")

    def cycle(self, most):
        """Kill the commands up to ``most`` times, let them finish and compare; return the number of kills."""
        begun = time.monotonic()
        folder, story = self.begin(), []
        try:
            for _ in range(self.rng.randint(1, most)):
                role = self.rng.choice(self.case.roles)
                what = self._kill_dask(folder, role) if role.startswith("dask") else self.kill(folder, role, len(story))
                if what is None:
                    break
                story.append(what)
            self.finish(folder)
            self.tally.held += len(story)
        except ChaosError as error:
            self.tally.failed += max(1, len(story))
            self.tally.failures.append(f"{self.case.name}: killed {'; '.join(story)}: {error}")
        self.tally.tried = self.tally.held + self.tally.failed
        self.tally.seconds += time.monotonic() - begun
        return len(story)

    def finish(self, folder):
        """Run the commands to their end, and compare their result with that of a run without a kill."""
        for words in self.case.killed:
            self.zygote.finish(words.replace("--dask {dask}", "--workers 1"), folder)
        self._end(folder)
        result = self.case.result(folder)
        names = sorted(name for name in {*result, *self.expected} if result.get(name) != self.expected.get(name))
        if names:
            raise ChaosError(f"{', '.join(names)} is not what a run without a kill makes")

    def kill(self, folder, role, earlier=0):
        """Start the commands and kill one of them; return what was killed, or None if all ended before."""
        plan = self._draw(folder, role, earlier)
        by_time = self.rng.random() < BY_TIME
        by = self.rng.choice(SIGNALS[:2] if role == "worker" else SIGNALS)  # workers leave Ctrl-C to their driver
        chosen = self.rng.randrange(len(self.case.killed))
        delay = self.rng.uniform(*self.span)
        pids = [
            self.zygote.start(words, folder, plan=plan if k == chosen and not by_time else None)
            for k, words in enumerate(self.case.killed)
        ]
        what = f"the {role} {plan['when']} operation {plan['at']} of the {plan['role']}"
        if by_time:
            code, hit = self.zygote.wait(pids[chosen], delay), False
            if code is None:
                hit, what = _shoot(pids[chosen], role, self.rng, by), f"the {role} by {by.name} after {delay:.2f} s"
                code = self.zygote.wait(pids[chosen])
                hit = hit and (role == "worker" or code != 0)  # unless it had ended just before
        else:
            code = self.zygote.wait(pids[chosen])
            hit = (self.root / "token").exists()
        codes = [code if k == chosen else self.zygote.wait(pid) for k, pid in enumerate(pids)]
        ends = {-signal.SIGKILL} if not by_time else {-by, 128 + by}
        expected = {0} if not hit or role == "worker" else ends
        if code not in expected or any(other != 0 for k, other in enumerate(codes) if k != chosen):
            raise ChaosError(f"{what} ended with {codes}: {(folder / 'err').read_text(errors='replace')[-2000:]}")
        return what if hit else None

    def _kill_dask(self, folder, role):
        """Let a worker or the scheduler of a cluster be killed when a worker comes to an operation."""
        (self.root / "token").unlink(missing_ok=True)
        if self.cluster is None or self.cluster.scheduler.poll() is not None:
            self.close()
            self.cluster = Cluster(self.root)
        at = self.rng.randint(1, max(1, self.operations["worker"] // 2))
        victim = "self" if role == "dask worker" else self.cluster.scheduler.pid
        # A worker is no driver: number 0 is nobody's.
        plan = self._plan(folder, at=at, role="worker", when=self.rng.choice(("before", "after")), victim=victim)
        while len(self.cluster.crew) < (2 if role == "dask worker" else 1):
            self.cluster.add(plan | {"driver": 0} if len(self.cluster.crew) != 0 or role != "dask worker" else None)
        words = self.case.killed[0].replace("{dask}", self.cluster.address)
        code, said = self.zygote.call(words, folder)
        hit = (self.root / "token").exists()
        expected = 2 if hit and role == "dask scheduler" else 0
        if code != expected and not (code == 0 and _count_left(folder) == 0):
            raise ChaosError(f"graphquilt {words} ended with {code}: {said[-2000:]}")
        if code == 2 and "Traceback" in said:
            raise ChaosError(f"more than one sentence: {said[-2000:]}")
        for process in list(self.cluster.crew[1:] if role == "dask worker" else self.cluster.crew):
            process.kill()  # each plan belongs to one worker
            process.wait()
            self.cluster.crew.remove(process)
        return f"the {role} {plan['when']} operation {at} of a worker" if hit else None

    def close(self):
        if self.cluster is not None:
            self.cluster.stop()
            self.cluster = None


def _count_left(folder):
    patches = list((folder / "job" / "patches").iterdir())
    return sum(not (patch / "embedding.json").exists() for patch in patches)


def _shoot(pid, role, rng, by):
    """Send a signal now: to the driver, one of its workers, or the group; return whether there was one."""
    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        if role == "group":
            os.killpg(pid, by)
            return True
        if role == "driver":
            os.kill(pid, by)
            return True
        children = psutil.Process(pid).children(recursive=True)
        servers = {process.pid for process in children}
        workers = [process for process in children if process.ppid() in servers]
        if workers:
            rng.choice(workers).send_signal(by)
            return True
    return False


def available(names=tuple(CASES)):
    """Return the cases whose packages are installed."""
    return [name for name in names if CASES[name].package is None or find_spec(CASES[name].package)]


def kill(names, *, kills, seed=0, end=float("inf"), most=MOST_KILLS, zygote=None):
    """Kill the named cases, which share the kills; return one Tally for each."""
    total = sum(CASES[name].share for name in names)
    tallies = {}
    with tempfile.TemporaryDirectory(prefix="graphquilt-chaos-") as root:
        for k, name in enumerate(names):
            killer = Killer(CASES[name], zygote, Path(root, str(k)), seed)
            tallies[name] = killer.tally
            wanted, cycles = max(1, round(kills * CASES[name].share / total)), 0
            try:
                while killer.tally.tried < wanted and cycles < 5 * wanted and time.monotonic() < end:
                    killer.cycle(min(most, wanted - killer.tally.tried))
                    cycles += 1
            finally:
                killer.close()
            shutil.rmtree(killer.root)
            print(f"{name}: {killer.tally.held} of {killer.tally.tried} kills held", file=sys.stderr)
    return tallies


# Circumstances


def _one_sentence(code, said):
    """Check that a command has succeeded, or has failed with one sentence; return whether it has succeeded."""
    lines = [line for line in said.splitlines() if line.startswith("graphquilt: ")]
    if code not in (0, 2) or "Traceback" in said or (code == 2 and not lines):
        raise ChaosError(f"it ended with {code} and said: {said[-2000:]}")
    return code == 0


def full_disk(killer):
    """No file may grow beyond a size that is drawn; the command ends in one sentence, and goes on later."""
    folder = killer.begin()
    limit = int(10 ** killer.rng.uniform(3.3, 6))
    for words in killer.case.killed:
        _one_sentence(*killer.zygote.call(words, folder, limits=[("FSIZE", limit)]))
    killer.finish(folder)


def little_memory(killer):
    """The process may have only some megabytes more than at its beginning (ulimit -v).

    LLVM and Arrow end or stop a process that gets no memory, so that it may end in any way; it must go on later.
    """
    folder = killer.begin()
    more = int(10 ** killer.rng.uniform(6, 8.3))
    for words in killer.case.killed:
        pid = killer.zygote.start(words, folder, limits=[("AS", more)])
        if killer.zygote.wait(pid, PATIENCE / 4) is None:
            os.killpg(pid, signal.SIGKILL)
            killer.zygote.wait(pid)
    killer.finish(folder)


def future_times(killer):
    """The clock was set back: after a kill, all files have times that are ten years in the future."""
    folder = killer.begin()
    killer.kill(folder, "driver")
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (time.time() + YEARS,) * 2, follow_symlinks=False)
    killer.finish(folder)


def linked_folder(killer):
    """What a command makes lies elsewhere, and its folder has a link to it; the link stays."""
    folder = killer.begin()
    (killer.root / "elsewhere").mkdir(exist_ok=True)
    for name in ("job", "graph", "state"):
        shutil.rmtree(killer.root / "elsewhere" / name, ignore_errors=True)
        (killer.root / "elsewhere" / name).mkdir()
        (folder / name).symlink_to(killer.root / "elsewhere" / name)
    killer.kill(folder, "driver")
    killer.finish(folder)
    if not all((folder / name).is_symlink() for name in ("job", "graph", "state")):
        raise ChaosError("a link was replaced")


def link_that_leads_out(killer):
    """A folder or file of an unfinished job, build or state is a link to another place, where nothing may change."""
    folder, elsewhere = killer.begin(), killer.root / "outside"
    killer.kill(folder, "driver")
    shutil.rmtree(elsewhere, ignore_errors=True)
    elsewhere.mkdir()
    (elsewhere / "file").write_bytes(b"mine")
    made = [path for name in ("job", "graph", "state") for path in sorted((folder / name).rglob("*"))]
    if not made:
        return
    path = killer.rng.choice(made)
    target = elsewhere / ("file" if path.is_file() else "")
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(target)
    for words in killer.case.killed:
        _one_sentence(*killer.zygote.call(words, folder))
    if [each.name for each in elsewhere.iterdir()] != ["file"] or (elsewhere / "file").read_bytes() != b"mine":
        raise ChaosError(f"{path.relative_to(folder)} led out, and something was written there")


# The records of a job in the order in which they are made.
MADE = (
    "clusters",
    "labels",
    "patch_graph",
    "survey",
    "patches/*/kept0",
    "starts/0/0",
    "patches/*/embedding",
    "alignment",
)


def changed_record(killer):
    """A record is written again with other numbers that are as valid; a run after that, killed once, must notice.

    Expected is what a job gives that has the changed record and nothing that was made after it.
    """
    from graphquilt.jobs import DirectoryStore, Record

    folder, other = killer.begin(), killer.root / "other"
    for words in killer.case.killed:
        killer.zygote.finish(words, folder)
    store = DirectoryStore(folder / "job")
    found = {
        pattern: sorted((folder / "job").glob(f"{pattern}.json")) for pattern in MADE[1:-1] if pattern != "patch_graph"
    }
    pattern = killer.rng.choice([pattern for pattern, paths in found.items() if paths])
    path = killer.rng.choice(found[pattern])
    key = str(path.relative_to(folder / "job").with_suffix(""))
    arrays = {name: np.array(array) for name, array in store[key].arrays.items()}
    scaled = {name: array * 2 for name, array in arrays.items() if array.dtype.kind == "f"}
    changed = {"labels": np.roll(arrays["labels"], 7)} if key == "labels" else arrays | scaled
    store[key] = Record(changed, store[key].parameters)
    shutil.rmtree(other, ignore_errors=True)
    shutil.copytree(folder, other)
    for later in (*MADE[MADE.index(pattern) + 1 :], "embedding"):
        for made in (other / "job").glob(f"{later}.*"):
            made.unlink()
    killer.kill(folder, "driver")
    for place in (folder, other):
        for words in killer.case.killed:
            killer.zygote.finish(words, place)
    one, two = killer.case.result(folder), killer.case.result(other)
    if one != two:
        raise ChaosError(f"{key} was changed, and {[name for name in one if one[name] != two[name]]} did not follow")


def few_open_files(killer):
    """Not more than 64 files may be open at once (ulimit -n 64)."""
    folder = killer.begin()
    for words in killer.case.killed:
        code, said = killer.zygote.call(words, folder, limits=[("NOFILE", 64)])
        if code != 0:
            raise ChaosError(f"it ended with {code} and said: {said[-2000:]}")
    killer.finish(folder)


MANY = Case(
    "embed, 500 patches",
    lambda folder: write_edges(folder, (90, 100)),
    (f"{EMBED_ALL.replace('--patches 5', '--patches 500')} --overlap 4:16 --workers 1",),
    embedding,
)
SINGLE = ("embed, shared start", "watch", "ingest, out of core")
CIRCUMSTANCES = {
    "full disk": (full_disk, (*SINGLE, "ingest, in memory"), 12),
    "little memory": (little_memory, SINGLE, 12),
    "times in the future": (future_times, SINGLE, 6),
    "folder through a link": (linked_folder, SINGLE, 6),
    "link that leads out": (link_that_leads_out, SINGLE, 12),
    "changed record": (changed_record, ("embed, shared start", "embed, SVD"), 20),
    "500 patches, 64 open files": (few_open_files, (MANY.name,), 1),
}


def try_circumstances(names, *, seed=0, end=float("inf"), zygote=None, times=None):
    """Try the named circumstances, or each only so many times; return one Tally for each."""
    tallies = {name: Tally() for name in names}
    with tempfile.TemporaryDirectory(prefix="graphquilt-chaos-") as root:
        for name, tally in tallies.items():
            attempt, cases, usual = CIRCUMSTANCES[name]
            for k, each in enumerate(cases):
                killer = Killer(
                    (CASES | {MANY.name: MANY})[each], zygote, Path(root, name.replace(" ", "-"), str(k)), seed
                )
                for _ in range(-(-(times or usual) // len(cases))):
                    begun = time.monotonic()
                    if begun > end:
                        break
                    tally.tried += 1
                    try:
                        attempt(killer)
                        tally.held += 1
                    except ChaosError as error:
                        tally.failed += 1
                        tally.failures.append(f"{name}, {each}: {error}")
                    tally.seconds += time.monotonic() - begun
                shutil.rmtree(killer.root)
    return tallies


MODULES = (
    *("graphquilt.cli", "graphquilt.jobs", "graphquilt.temporal", "graphquilt.graph", "graphquilt.temporal.traffic"),
    *("numba", "scipy.sparse.linalg", "scipy.linalg", "pyarrow.csv", "pyarrow.parquet"),
)


def table(tallies):
    """Return the counts as a table."""
    lines = [f"{'what':<34}{'tried':>7}{'held':>7}{'failed':>8}{'mean':>9}"]
    for name, t in tallies.items():
        lines.append(f"{name:<34}{t.tried:>7}{t.held:>7}{t.failed:>8}{t.seconds / max(t.tried, 1):>7.1f} s")
    counts = [sum(getattr(t, name) for t in tallies.values()) for name in ("tried", "held", "failed")]
    return "\n".join([*lines, f"{'all':<34}{counts[0]:>7}{counts[1]:>7}{counts[2]:>8}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after this time")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    choices = [*CASES, *CIRCUMSTANCES]
    parser.add_argument("--case", action="append", choices=choices, help="only this one; may be repeated")
    options = parser.parse_args()
    chosen = options.case or choices
    names = available([name for name in CASES if name in chosen])
    end = time.monotonic() + options.seconds
    zygote = Zygote([*MODULES, *(["torch"] if "embed, VGAE" in names else [])])
    try:
        tallies = kill(names, kills=options.kills, seed=options.seed, end=end, zygote=zygote)
        others = [name for name in CIRCUMSTANCES if name in chosen]
        tallies |= try_circumstances(others, seed=options.seed, end=end, zygote=zygote)
    finally:
        zygote.stop()
    print(table(tallies))
    for failure in (failure for tally in tallies.values() for failure in tally.failures):
        print(failure)
    sys.exit(any(tally.failed for tally in tallies.values()))


if __name__ == "__main__":
    main()

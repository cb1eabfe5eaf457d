"""The flags of worker processes and clusters."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from graphquilt.cli.flags import MAIN, POSITIVE, RUNNING
from graphquilt.errors import InputError, JobError, MissingExtraError


@Parameter(name="*", group=RUNNING)
@dataclass(frozen=True, kw_only=True)
class Workers:
    """Who does the work."""

    workers: Annotated[int | None, Parameter(name=["--workers", "-w"], validator=POSITIVE, group=MAIN)] = None
    """Processes on this machine. [default: one per core]"""
    dask: str | None = None
    """Address of a Dask scheduler whose workers to use."""
    dask_resource: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = ()
    """Resource that each patch takes of a Dask worker, e.g. GPU=1; repeatable."""

    def count(self, n_tasks: int) -> int:
        """Return the number of processes: the flag's, or one per core that has a task."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.workers or max(1, min(cores, n_tasks))

    @contextlib.contextmanager
    def executor(self, n_tasks: int, uses: Sequence[object] = ()) -> Iterator[Executor | None]:
        """Lend the executor: a Dask cluster, processes here, or None for a plain loop.

        ``uses`` are objects that the workers need; single-file modules that define them are sent to a cluster.
        """
        if self.dask is not None:
            with self._cluster(self.dask, uses) as pool:
                yield pool
            return
        n_workers = self.count(n_tasks)
        if n_workers == 1:
            yield None
            return
        from graphquilt.jobs import Processes

        with Processes(n_workers) as processes:
            yield processes

    @contextlib.contextmanager
    def _cluster(self, address: str, uses: Sequence[object]) -> Iterator[Executor]:
        try:
            from distributed import Client
        except ImportError as error:
            raise MissingExtraError("--dask", "dask") from error
        needs: dict[str, float] = {}
        for text in self.dask_resource:
            name, _, amount = text.partition("=")
            try:
                needs[name] = float(amount)
            except ValueError:
                raise InputError(f"--dask-resource takes a name and a number, e.g. GPU=1, not '{text}'.") from None
        for name in ("distributed", "distributed.client", "tornado.application", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # no tracebacks: an error here is one sentence
        try:
            client = Client(address, set_as_default=False)
        except (OSError, ValueError) as error:
            raise JobError(f"no Dask scheduler at {address}: {error}") from error
        except (TypeError, RuntimeError) as error:  # certificates are missing, or encryption is required
            raise JobError(
                f"the Dask scheduler at {address} cannot be reached safely: {error}. See SECURITY.md."
            ) from error
        options = {"resources": needs} if needs else {}
        with client:
            for path in _loose_modules(uses):
                client.upload_file(path)
            with client.get_executor(pure=False, retries=2, **options) as pool:
                yield pool


def _loose_modules(values: Sequence[object]) -> list[str]:
    """Return the files of modules outside any package, which are not installed on the workers."""
    names = {type(value).__module__ for value in values} | {getattr(value, "__module__", "") for value in values}
    files = {getattr(sys.modules.get(name), "__file__", None) for name in names if name and "." not in name}
    return sorted(path for path in files if path is not None and "site-packages" not in path)


def shard_patches(text: str | None, n_patches: int) -> range | None:
    """Return the patches of shard ``I/N``: I - 1, I - 1 + N, and so on."""
    if text is None:
        return None
    try:
        number, count = (int(part) for part in text.split("/"))
    except ValueError:
        raise InputError(f"--shard takes two integers with a slash, e.g. 3/200, not '{text}'.") from None
    if not 1 <= number <= count:
        raise InputError(f"--shard {text}: shards are numbered 1/{count} to {count}/{count}.")
    return range(number - 1, n_patches, count)

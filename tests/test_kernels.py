"""Kernels: compiled at the first call, announced once, and given read-only views."""

import logging
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import graphquilt as gq
from graphquilt.kernels import Kernel, jit, kernel


@jit
def twice(x):
    return 2 * x


@kernel("doubling", writes=("out",))
def double(pair, scale, out):
    a, b = pair
    for k in range(len(a)):
        out[k] = twice(a[k] + b[k]) * scale
    return len(a)


@kernel("writing where it must not")
def overwrite(values):
    values[0] = 1


def test_a_memory_map_and_a_strided_array_share_one_compiled_version(tmp_path):
    out = np.zeros(3)
    np.save(tmp_path / "a.npy", np.arange(3.0))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    inputs = (np.arange(3.0), np.ones(3)), (mapped, np.ones((3, 2))[:, 0])
    for pair in inputs:
        assert double(pair, 2, out) == 3
        assert out.tolist() == [4, 8, 12]
    assert len(double._dispatcher.signatures) == 1
    assert inputs[0][0].flags.writeable


def test_only_the_named_arrays_can_be_written():
    from numba.core.errors import TypingError

    with pytest.raises(TypingError, match="readonly"):
        overwrite(np.zeros(2))
    with pytest.raises(TypeError, match=r"twice writes to \('y',\)"):
        Kernel(twice.__wrapped__, writes=("y",))


def test_the_first_compilation_of_a_process_is_a_warning_and_later_ones_are_not(monkeypatch, caplog):
    monkeypatch.setattr("graphquilt.kernels._is_compiled", lambda _: False)
    monkeypatch.setattr(Kernel, "_announced", False)
    caplog.set_level(logging.INFO, "graphquilt")
    first, second = (Kernel(double.__wrapped__, work, writes=("out",)) for work in ("first", "second"))
    for function in (first, second, first):
        function((np.ones(2), np.ones(2)), 1, np.zeros(2))
    messages = [(record.levelname, record.getMessage().partition(":")[0]) for record in caplog.records]
    assert messages == [("WARNING", "first"), ("INFO", "second")]


def test_numba_is_imported_only_when_a_kernel_runs():
    command = "import sys, graphquilt.patches, graphquilt.graph; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", command], check=True)


def test_kernels_do_not_sort_both_ways():
    """A cached kernel of ``argsort`` may be taken for one of ``sort`` (numba 0.68), so only one of them is used."""
    sources = Path(gq.__file__).parent.rglob("*kernels.py")
    words = {path.name: set(re.findall(r"\b(argsort|sort)\(", path.read_text())) for path in sources}
    assert words
    assert not [name for name, used in words.items() if "sort" in used]

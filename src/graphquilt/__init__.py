"""graphquilt: graph embeddings stitched from independently embedded patches.

Every public name is loaded when it is first used, so that ``import graphquilt`` and ``graphquilt --help`` cost
nothing. ``__init__.pyi`` tells type checkers the same names.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# Public name -> the module that defines it. No module bears the name of a public function: importing the module
# would put it in the function's place.
_HOMES = {
    "Conductance": "sparsify",
    "ConvergenceError": "errors",
    "CoverError": "errors",
    "DisconnectedError": "errors",
    "Fennel": "partition",
    "FormatError": "errors",
    "Graph": "graph",
    "InputError": "errors",
    "JobError": "errors",
    "Limits": "patches",
    "Metis": "partition",
    "MissingExtraError": "errors",
    "OverlapError": "errors",
    "Patch": "patches",
    "PatchGraph": "patches",
    "Progress": "progress",
    "QuiltError": "errors",
    "Resistance": "sparsify",
    "edge_cut": "partition",
    "merge_small": "partition",
    "patch_graph": "patches",
    "read_edges": "ingest",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'graphquilt' has no attribute '{name}'")
    value = getattr(import_module(f"graphquilt.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]

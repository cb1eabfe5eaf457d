"""Skip a test where an optional package is missing, and name the extra that brings it."""

import pytest

# Every optional package that a test may ask for, and the extra of graphquilt that installs it.
EXTRAS = {
    "torch": "torch",
    "safetensors": "torch",
    "torch_geometric": "pyg",
    "dask": "dask",
    "distributed": "dask",
    "sknetwork": "partition",
    "sklearn": "eval",
    "matplotlib": "viz",
    "umap": "viz",
    "private_set_intersection": "federated",
    "cryptography": "federated",
    "flwr": "flower",
    "networkx": "all",
    "pandas": "dev",
    "gensim": "dev",
}

# The public names whose doctest needs an optional package.
DOCTESTS = {
    "VGAE": "torch",
    "GAE": "torch",
    "DGI": "torch",
    "Louvain": "sknetwork",
    "Leiden": "sknetwork",
    "from_networkx": "networkx",
}


# Packages that graphquilt works with and never imports; the dependency group interop has them.
OTHERS = {"anndata", "duckdb", "igraph", "lancedb", "narwhals", "psycopg", "qdrant_client"}


def needs(module):
    """Import and return an optional module; skip the test, or the test file, where its package is not installed."""
    package = module.partition(".")[0]
    place = "the group interop" if package in OTHERS else f"the extra graphquilt[{EXTRAS[package]}]"
    return pytest.importorskip(module, reason=f"needs {package}, of {place}")

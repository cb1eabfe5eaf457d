"""Methods that place the nodes of one graph: the built-in ones, and the contract for anybody else's."""

from graphquilt.embedders.adapters import FunctionEmbedder, PyGEmbedder, TransformerEmbedder, as_embedder
from graphquilt.embedders.basis import BasisEncoder
from graphquilt.embedders.contract import (
    Context,
    Embedder,
    Fit,
    Surroundings,
    can_start,
    check_dim,
    checked_fit,
    checked_offer,
    free_motions,
    needs_start,
    started,
    with_start,
)
from graphquilt.embedders.dgi import DGI
from graphquilt.embedders.encoder import Encoder
from graphquilt.embedders.propagation import Propagation
from graphquilt.embedders.svd import SVD
from graphquilt.embedders.vgae import GAE, VGAE

__all__ = [
    "DGI",
    "GAE",
    "SVD",
    "VGAE",
    "BasisEncoder",
    "Context",
    "Embedder",
    "Encoder",
    "Fit",
    "FunctionEmbedder",
    "Propagation",
    "PyGEmbedder",
    "Surroundings",
    "TransformerEmbedder",
    "as_embedder",
    "can_start",
    "check_dim",
    "checked_fit",
    "checked_offer",
    "free_motions",
    "needs_start",
    "started",
    "with_start",
]

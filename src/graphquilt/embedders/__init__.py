"""Methods that place the nodes of one graph: the built-in ones, and the contract for anybody else's."""

from graphquilt.embedders.contract import (
    Embedder,
    Fit,
    FunctionEmbedder,
    TransformerEmbedder,
    as_embedder,
    check_dim,
    checked_fit,
)
from graphquilt.embedders.directions import BasisEncoder
from graphquilt.embedders.network import Encoder
from graphquilt.embedders.propagation import Propagation
from graphquilt.embedders.shared_start import (
    FarField,
    SharedStart,
    Survey,
    agree,
    cut_patch,
    free_motions,
    shares_start,
)
from graphquilt.embedders.signals import Signal
from graphquilt.embedders.svd import SVD
from graphquilt.embedders.vgae import DGI, GAE, VGAE

__all__ = [
    "DGI",
    "GAE",
    "SVD",
    "VGAE",
    "BasisEncoder",
    "Embedder",
    "Encoder",
    "FarField",
    "Fit",
    "FunctionEmbedder",
    "Propagation",
    "SharedStart",
    "Signal",
    "Survey",
    "TransformerEmbedder",
    "agree",
    "as_embedder",
    "check_dim",
    "checked_fit",
    "cut_patch",
    "free_motions",
    "shares_start",
]

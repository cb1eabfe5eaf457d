"""Other embedders of whole graphs, called the same way: adjacency, dimension and seed in, one row per node out.

FastRP and ProNE have no well-kept package and are written from their papers; the others are the packages themselves.
Each is used as its documentation recommends for a graph without features.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.special import iv


def unit_rows(X):
    """Return rows of length 1; rows of zeros stay."""
    lengths = np.linalg.norm(X, axis=1, keepdims=True)
    return X / np.where(lengths > 0, lengths, 1)


def random_walk(A):
    """Return D^-1 A in single precision."""
    degrees = np.asarray(A.sum(axis=1)).ravel()
    return sp.diags_array((1 / np.maximum(degrees, 1e-12)).astype(np.float32)) @ A.astype(np.float32, copy=False)


def fast_rp(A, dim, seed):
    """FastRP (Chen et al. 2019): powers of the random walk times a very sparse random matrix.

    Six powers, the first two left out, and no weight by degree: the best on Cora and Amazon photo among four lists of
    weights and three powers of the degree.
    """
    rng = np.random.default_rng(seed)
    U = rng.choice([-1.0, 0.0, 1.0], p=[1 / 6, 2 / 3, 1 / 6], size=(A.shape[0], dim)).astype(np.float32)
    P, total = random_walk(A), 0
    for weight in (0, 0, 1, 1, 1, 1):
        U = P @ U
        total = total + weight * unit_rows(U)
    return unit_rows(total)


def prone(A, dim, seed):
    """ProNE (Zhang et al. 2019): factorise log(p_ij / P_j), then filter with a band-pass of the Laplacian."""
    from sklearn.utils.extmath import randomized_svd

    P = random_walk(A).tocsr()
    negative = np.asarray(P.sum(axis=0)).ravel() ** 0.75
    negative /= negative.sum()
    M = P.copy()
    M.data = np.log(np.maximum(P.data, 1e-12)) - np.log(np.maximum(negative[P.indices], 1e-12))
    U, values, _ = randomized_svd(M, dim, n_iter=5, random_state=seed)
    X = unit_rows(U * np.sqrt(values))
    # Chebyshev expansion of the Gaussian kernel around mu = .2, with theta = .5 and 10 terms, as the paper sets them.
    one = sp.eye_array(A.shape[0], dtype=np.float32)
    loops = (A + one).astype(np.float32)
    shifted = (0.8 * one - random_walk(loops)).astype(np.float32)
    terms = [float(iv(order, 0.5)) for order in range(10)]
    before, now = X, 0.5 * (shifted @ (shifted @ X)) - X
    kernel = terms[0] * before - 2 * terms[1] * now
    for order in range(2, 10):
        before, now = now, shifted @ (shifted @ now) - 2 * now - before
        kernel += 2 * (-1) ** order * terms[order] * now
    smooth = loops @ (X - kernel)
    del before, now, kernel, X
    U, values, _ = np.linalg.svd(smooth, full_matrices=False)
    return unit_rows(U * np.sqrt(values))


def cleora(A, dim, seed):
    """Cleora by pycleora, with its defaults."""
    import pycleora

    upper = sp.triu(A, k=1).tocoo()
    lines = (f"{a} {b}" for a, b in zip(upper.row.tolist(), upper.col.tolist(), strict=True))
    matrix = pycleora.SparseMatrix.from_iterator(lines, columns="complex::reflexive::node")
    X = np.zeros((A.shape[0], dim), dtype=np.float32)
    X[np.asarray(matrix.entity_ids, dtype=np.int64)] = pycleora.embed(matrix, dim, seed=seed, num_workers=1)
    return X


def sknetwork_gsvd(A, dim, _seed):
    """Generalised SVD of scikit-network."""
    from sknetwork.embedding import GSVD

    return GSVD(dim).fit_transform(sp.csr_matrix(A))


def sknetwork_spectral(A, dim, _seed):
    """Spectral embedding of scikit-network."""
    from sknetwork.embedding import Spectral

    return Spectral(dim).fit_transform(sp.csr_matrix(A))


def node2vec(A, dim, seed):
    """node2vec by fastnode2vec, on gensim: 10 walks of 80 steps per node, window 10, one epoch, p = q = 1."""
    from fastnode2vec import Graph, Node2Vec

    upper = sp.triu(A, k=1).tocoo()
    graph = Graph(list(zip(upper.row.tolist(), upper.col.tolist(), strict=True)), directed=False, weighted=False)
    model = Node2Vec(graph, dim=dim, walk_length=80, window=10, p=1.0, q=1.0, batch_walks=10_000, workers=1, seed=seed)
    model.train(epochs=10)  # an epoch is one walk from every node
    return np.array([model.wv[node] if node in model.wv else np.zeros(dim) for node in range(A.shape[0])])


PEERS = {
    "Cleora": cleora,
    "FastRP": fast_rp,
    "ProNE": prone,
    "scikit-network GSVD": sknetwork_gsvd,
    "scikit-network Spectral": sknetwork_spectral,
    "node2vec": node2vec,
}

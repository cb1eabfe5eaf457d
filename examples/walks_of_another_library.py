"""Random walks and the word2vec of gensim (node2vec with p = q = 1) in every patch, stitched.

python examples/walks_of_another_library.py [--out walks.png]
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
from gensim.models import Word2Vec
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph

import graphquilt as gq

DIM = 16


def walks(graph, rng, *, per_node=8, length=20):
    """Return random walks as lists of node names."""
    for start in np.repeat(np.arange(graph.n_nodes), per_node):
        walk = [start]
        while len(walk) < length:
            neighbours = graph.indices[graph.indptr[walk[-1]] : graph.indptr[walk[-1] + 1]]
            if not len(neighbours):
                break
            walk.append(rng.choice(neighbours))
        yield [str(node) for node in walk]


def node2vec(graph, seed):
    """Return one vector per node, by skip-gram with negative samples."""
    sentences = list(walks(graph, np.random.default_rng(seed)))
    model = Word2Vec(sentences, vector_size=DIM, window=5, min_count=0, sg=1, workers=1, seed=seed % 2**31, epochs=3)
    return np.array([model.wv[str(node)] for node in range(graph.n_nodes)])


parser = argparse.ArgumentParser()
parser.add_argument("--out", default="walks.png")
arguments = parser.parse_args()

digits = load_digits()  # each handwritten digit is joined to the eight most like it
A = kneighbors_graph(digits.data, 8)
graph = gq.Graph(A.maximum(A.T), labels=digits.target)
embedder = gq.FunctionEmbedder(node2vec, dim=DIM)
result = gq.embed(graph, dim=DIM, cutting=gq.Cutting(4, overlap=(128, 512)), embedder=embedder)
print(result.alignment.summary())
print(gq.evaluate.quality(result.embedding, graph))

X = result.embedding - result.embedding.mean(axis=0)
plane = X @ np.linalg.svd(X, full_matrices=False)[2][:2].T
figure, axis = plt.subplots(figsize=(5.5, 5), layout="constrained")
axis.scatter(*plane.T, c=graph.labels, cmap="tab10", s=5)
axis.set(title="Ten digits, from walks in four patches", xticks=[], yticks=[])
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")

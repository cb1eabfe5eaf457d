"""Two separately trained sets of word vectors, in one space.

    python examples/word_vectors.py [A.vec B.vec] [--out word_vectors.png]

Without files, two sets are generated: they share most words, and each has its own frame.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np

import graphquilt as gq


def made_up(seed, words, truth):
    """Return a set of word vectors that are rotated, scaled and noisy."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.normal(size=(truth.shape[1],) * 2))[0]
    return dict(zip(words, (seed + 1) * (truth @ turn) + 0.02 * rng.normal(size=truth.shape), strict=True))


def read_vec(path):
    """Read word2vec text: a line with two counts, then a word and its numbers per line."""
    with open(path, encoding="utf-8") as file:
        rows = (line.rstrip().split(" ") for line in list(file)[1:])
        return {word: np.array(numbers, dtype=float) for word, *numbers in rows}


parser = argparse.ArgumentParser()
parser.add_argument("files", nargs="*")
parser.add_argument("--out", default="word_vectors.png")
arguments = parser.parse_args()
if arguments.files:
    sets = [read_vec(path) for path in arguments.files]
else:
    words = [f"word{k:03d}" for k in range(400)]
    truth = np.random.default_rng(9).normal(size=(400, 16)) * np.linspace(3, 0.5, 16)
    sets = [made_up(0, words[:300], truth[:300]), made_up(1, words[100:], truth[100:])]

vocabulary = sorted(set().union(*sets))
number = {word: k for k, word in enumerate(vocabulary)}
patches = [(np.array([number[w] for w in vectors]), np.array(list(vectors.values()))) for vectors in sets]
alignment = gq.align(patches, scale=True)
print(alignment.summary())

figure, axes = plt.subplots(1, 2, figsize=(9, 4.5), layout="constrained")
for k, (_, X) in enumerate(patches):
    for axis, points in zip(axes, (X, alignment.apply(k, X)), strict=True):
        axis.scatter(*points[:, :2].T, s=8, alpha=0.6, label=f"set {k + 1}")
axes[0].set_title("as they were trained")
axes[1].set_title("aligned")
axes[0].legend()
figure.savefig(arguments.out, dpi=120)
print(f"Picture: {arguments.out}")

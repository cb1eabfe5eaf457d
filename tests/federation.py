"""A small network cut among parties, and one round among them, for the tests of federated alignment."""

from dataclasses import replace
from itertools import combinations

import numpy as np

import graphquilt as gq
from graphquilt.federated import align


def shares(graph, n_parties):
    """Give every community to one party: its own nodes, and these with their direct neighbours."""
    labels = gq.Metis(n_parties)(graph)
    own = [np.flatnonzero(labels == k) for k in range(n_parties)]
    return own, [np.union1d(mine, graph.adjacency[mine].indices) for mine in own]


def secret_of(name):
    """The secret of a party, the same in every test."""
    return name.encode().ljust(32, b".")


def offer_of(graph, nodes, agreed, key, *, party, embedder, **options):
    """Embed the part of a graph that a party knows, and offer it."""
    X = embedder(graph.subgraph(nodes), 0)
    return align.offer(nodes, X, agreed, key=key, party=party, secret=secret_of(party), **options)


def offers(graph, n_parties, embedder, *, noise=0.0, psi=False, **agreed):
    """Invite to a round, and return the parties with their offers, and the nodes of each."""
    nodes = shares(graph, n_parties)[1]
    made, key = align.invite("night-1", embedder.dim, ids_can_be_guessed=not psi, **agreed)
    names = [f"bank-{'abcdefghij'[k]}" for k in range(n_parties)]
    parties = [
        offer_of(graph, some, made, key, party=name, embedder=embedder, noise=noise)
        for name, some in zip(names, nodes, strict=True)
    ]
    return parties, nodes


def measurements(parties, *, change=lambda sender, message: message):
    """Let every pair measure; ``change`` may falsify what a sender sends."""
    measured = []
    for a, b in combinations(parties, 2):
        message, sender, receiver = align.reply(a, b.offer), a, b
        if message.kind == "answer":
            message, sender, receiver = align.reply(b, message), b, a
        changed = change(sender, message)
        if changed is not message:
            changed = changed.authenticated(sender.key)
        measured.append(align.measure(receiver, changed))
    return measured


def with_arrays(message, key=None, **arrays):
    """Return a message with other arrays, authenticated where there is a key."""
    changed = replace(message, arrays={**message.arrays, **arrays})
    return changed if key is None else changed.authenticated(key)


def with_facts(message, key=None, **facts):
    """Return a message with other facts, authenticated where there is a key."""
    changed = replace(message, facts={**message.facts, **facts})
    return changed if key is None else changed.authenticated(key)

"""A small network cut among parties, and one round among them, for the tests of federated alignment."""

from dataclasses import replace
from itertools import combinations

import numpy as np

import graphquilt as gq
from graphquilt import federated


def shares(graph, n_parties):
    """Give every community to one party: its own nodes, and these with their direct neighbours."""
    labels = gq.Metis(n_parties)(graph)
    own = [np.flatnonzero(labels == k) for k in range(n_parties)]
    return own, [np.union1d(mine, graph.adjacency[mine].indices) for mine in own]


def offers(graph, n_parties, embedder, *, sharing=federated.Sharing(), **agreed):
    """Invite to a round, and return the parties with their offers, and the nodes of each."""
    nodes = shares(graph, n_parties)[1]
    made, key, start = federated.invite("night-1", embedder, **agreed)
    parties = [
        federated.offer(graph.subgraph(some), made, key, party=f"bank-{'abcdefghij'[k]}", sharing=sharing, start=start)
        for k, some in enumerate(nodes)
    ]
    return parties, nodes


def measurements(parties, *, change=lambda sender, message: message):
    """Let every pair measure; ``change`` may falsify what a sender sends."""
    measured = []
    for a, b in combinations(parties, 2):
        message, sender, receiver = federated.reply(a, b.offer), a, b
        if message.kind == "answer":
            message, sender, receiver = federated.reply(b, message), b, a
        changed = change(sender, message)
        if changed is not message:
            changed = changed.authenticated(sender.key)
        measured.append(federated.measure(receiver, changed))
    return measured


def with_arrays(message, key=None, **arrays):
    """Return a message with other arrays, authenticated where there is a key."""
    changed = replace(message, arrays={**message.arrays, **arrays})
    return changed if key is None else changed.authenticated(key)


def with_facts(message, key=None, **facts):
    """Return a message with other facts, authenticated where there is a key."""
    changed = replace(message, facts={**message.facts, **facts})
    return changed if key is None else changed.authenticated(key)

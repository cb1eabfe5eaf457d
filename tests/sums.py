"""Rounds of sums among small parties, for the tests of federated sums."""

import numpy as np

import graphquilt as gq
from graphquilt import federated


def networks(graph, names, owner=None):
    """Give every community to one party, with the edges that touch its own nodes; node ids are those of the graph."""
    owner = gq.Metis(len(names))(graph) if owner is None else np.asarray(owner)
    parts = {}
    for k, name in enumerate(names):
        own = np.flatnonzero(owner == k)
        nodes = np.union1d(own, graph.adjacency[own].indices)
        part = graph.subgraph(nodes).with_attributes(node_ids=nodes)
        parts[name] = federated.Network.of(part, np.searchsorted(nodes, own))
    return parts


def agreed_round(parts, *, dim, key=b"key of the parties in this test!", name="night-1", features=0, **terms):
    """Invite, and let every party join."""
    terms = federated.Terms(**terms)
    invitation, key = federated.invite(name, dim, list(parts), features=features, terms=terms, key=key)
    members = {party: federated.join(network, invitation, key, party=party) for party, network in parts.items()}
    return federated.Round.of(invitation, [member.card for member in members.values()]), members


def contributions(parts, agreed, members, **given):
    """Let every party contribute to one step."""
    return [federated.contribute(parts[name], agreed, member, **given) for name, member in members.items()]


def complete(parts, agreed, members, **given):
    """Run all steps."""
    answer = None
    while answer is None or not answer.complete:
        answer = federated.combine(
            agreed, contributions(parts, agreed, members, received=answer, **given), before=answer
        )
    return answer

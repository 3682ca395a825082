"""Louvain communities of a graph, put together into clients of about equal size."""

from __future__ import annotations

import numpy as np

from fedtempo.support.extras import library


def communities(edges: np.ndarray, nodes: int, clients: int | None, seed: int) -> np.ndarray:
    """The client of every node: its Louvain community (Blondel et al. 2008), or a bundle of them.

    For a number of clients, as in FederatedScope (FedDecay's code), a community larger than nodes / clients is cut;
    the pieces, largest first, then go to the client that has fewest nodes so far. FederatedScope fills clients
    one after the other instead, up to a tolerance of 20 nodes; the sizes agree to about as much.
    """
    nx = library("networkx", "graph", "louvain")
    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges.tolist())
    found = [np.array(sorted(group)) for group in nx.community.louvain_communities(graph, seed=seed)]
    owner = np.empty(nodes, dtype=np.int64)
    if clients is None:
        for number, group in enumerate(sorted(found, key=lambda group: (-len(group), group[0]))):
            owner[group] = number
        return owner
    most = -(-nodes // clients)
    pieces = [group[start : start + most] for group in found for start in range(0, len(group), most)]
    sizes = np.zeros(clients, dtype=np.int64)
    for piece in sorted(pieces, key=lambda piece: (-len(piece), piece[0])):
        smallest = int(np.argmin(sizes))
        owner[piece] = smallest
        sizes[smallest] += len(piece)
    return owner

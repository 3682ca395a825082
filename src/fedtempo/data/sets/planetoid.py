"""PubMed, Cora and CiteSeer: citation graphs, cut into communities.

The convention for graphs. A table's row is a node: `x` its features, `y` its class, `edges` the links. After the
split, a client is one graph and its training, validation and test parts are one row each, with these columns:

    x      (nodes, features)  the features of all of the client's nodes, whatever their part
    edges  (links, 2)         pairs (from, to) of node numbers inside the client, both directions, no self-loops
    mask   (nodes,)           True for nodes, False for padding
    y      (nodes,)           the class of the nodes of this part; -100 for all other nodes

So a batch is {"x": (1, nodes, features), "edges": (1, links, 2), "mask": (1, nodes), "y": (1, nodes)}, training is
always full batch, and the model is called as model(x=, edges=, mask=) and returns (1, nodes, classes). Clients are
padded to the same number of nodes and links: real nodes come first, the last node is always padding, and padding links
join it to itself, so that messages along them reach nobody. -100 is the number that torch's cross-entropy ignores; the
loss of a row is the mean over the nodes that are not ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedtempo.data.federated import FederatedData
from fedtempo.data.files.archives import read_npz
from fedtempo.data.files.cache import cached
from fedtempo.data.files.folders import Sources
from fedtempo.data.files.published import DataSet, File
from fedtempo.data.files.serialised import MOST_FEATURES, array_of, links_of, read_serialised, rows_of
from fedtempo.data.parts import PARTS, TEST, TRAIN, VALIDATION
from fedtempo.data.table import Table
from fedtempo.errors import DataError
from fedtempo.tasks import IGNORED

_TRAINING_PER_CLASS, _VALIDATION_NODES = 20, 500
_NUMBERS = ("feat_indices", "feat_indptr", "feat_shape", "labels", "edges", "train_idx", "val_idx", "test_idx")


def pubmed(sources: Sources, public_parts: bool = False) -> Table:
    """PubMed: 19,717 papers on diabetes, 500 TF-IDF features, 3 classes.

    Without `public_parts`, parts are fractions of each client's nodes (FedDecay: `split(louvain(clients=5),
    validation=0.1, test=0.1)`). With it, the public split of 20 training nodes for each class, 500 validation and
    1,000 test nodes is kept; all other nodes stay in the graph without a label.
    """
    return _graph(sources, public_parts)


def cora(sources: Sources, public_parts: bool = False) -> Table:
    """Cora: 2,708 papers on machine learning, 1,433 words, 7 classes; parts as in `pubmed`."""
    return _graph(sources, public_parts)


def citeseer(sources: Sources, public_parts: bool = False) -> Table:
    """CiteSeer: 3,327 papers, 3,703 words, 6 classes, 15 papers without a class; parts as in `pubmed`."""
    return _graph(sources, public_parts)


def _graph(sources: Sources, public_parts: bool) -> Table:
    arrays = cached(sources, {}, lambda: _decode(sources))
    labels, parts = arrays["y"], None
    if public_parts:
        parts = np.where(arrays["part"] < 0, TRAIN, arrays["part"]).astype(np.int8)
        labels = np.where(arrays["part"] < 0, IGNORED, labels)
    columns = {"x": arrays["x"], "y": labels}
    return Table(sources.name, columns, parts=parts, edges=arrays["edges"], after=client_graphs(arrays["edges"]))


def _decode(sources: Sources) -> dict[str, np.ndarray]:
    name = f"{sources.name}.npz"
    return _from_arrays(sources[name], name) if name in sources else _from_official(sources)


def _from_arrays(path: Path, name: str) -> dict[str, np.ndarray]:
    found = read_npz(path, {"feat_data": "f", **dict.fromkeys(_NUMBERS, "i")})
    labels, edges = found["labels"].astype(np.int64), found["edges"].astype(np.int64)
    part = np.full(len(labels), -1, dtype=np.int8)
    try:
        features = _dense(found)
        for number, rows in ((TRAIN, "train_idx"), (VALIDATION, "val_idx"), (TEST, "test_idx")):
            part[found[rows]] = number
    except (ValueError, IndexError) as error:
        raise DataError(f"{name} does not hold a graph: {error}.") from None
    return _checked(name, {"x": features, "y": labels, "part": part, "edges": edges})


def _from_official(sources: Sources) -> dict[str, np.ndarray]:
    """Planetoid's own files: the test rows come in the order of test.index, the others before them."""

    def read(part: str, take: Callable[[Any], np.ndarray]) -> np.ndarray:
        file = f"ind.{sources.name}.{part}"
        found: np.ndarray = read_serialised(sources[file].read_bytes(), file, take)
        return found

    x, tests_x = read("allx", rows_of), read("tx", rows_of)
    y, tests_y = read("ally", array_of), read("ty", array_of)
    edges = read("graph", links_of)
    try:
        places = np.array([int(line) for line in sources[f"ind.{sources.name}.test.index"].read_text().split()])
        features, classes = np.concatenate([x, tests_x]), np.concatenate([y, tests_y])
        features[places], classes[places] = tests_x, tests_y
    except (ValueError, IndexError) as error:
        raise DataError(f"the files of {sources.name} do not fit together: {error}.") from None
    part = np.full(len(classes), -1, dtype=np.int8)
    training = _TRAINING_PER_CLASS * classes.shape[1]
    part[:training], part[training : training + _VALIDATION_NODES], part[places] = TRAIN, VALIDATION, TEST
    labels = np.where(classes.any(axis=1), classes.argmax(axis=1), IGNORED)
    return _checked(sources.name, {"x": features, "y": labels, "part": part, "edges": edges})


def _checked(name: str, graph: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    nodes, edges = len(graph["y"]), graph["edges"]
    if len(graph["x"]) != nodes or edges.shape[1:] != (2,) or edges.min() < 0 or edges.max() >= nodes:
        raise DataError(f"{name} must have features, a label and links for {nodes} nodes. Got other shapes.")
    return {**graph, "y": np.where(graph["y"] < 0, IGNORED, graph["y"])}


def _dense(found: dict[str, np.ndarray]) -> np.ndarray:
    """The features out of compressed rows: row i has `feat_data[feat_indptr[i]:feat_indptr[i + 1]]`."""
    rows, width = found["feat_shape"].tolist()
    if len(found["feat_indptr"]) != rows + 1 or not (rows > 0 and width > 0 and rows * width <= MOST_FEATURES):
        raise ValueError(f"feat_shape {rows}x{width} does not fit the rows given")
    features = np.zeros((rows, width), dtype=np.float32)
    starts = found["feat_indptr"].astype(np.int64)
    row = np.repeat(np.arange(rows), starts[1:] - starts[:-1])
    features[row, found["feat_indices"].astype(np.int64)] = found["feat_data"]
    return features


def client_graphs(edges: np.ndarray) -> Callable[[FederatedData], FederatedData]:
    """Turns clients that own nodes into clients that own a graph; see the convention above."""

    def graphs(data: FederatedData) -> FederatedData:
        own = [np.sort(np.concatenate([data.positions(c, part) for part in PARTS])) for c in range(len(data))]
        links = [_links(nodes, edges) for nodes in own]
        most_nodes = max(map(len, own)) + 1
        most_links = max(1, *map(len, links))
        rows = [
            _rows(data, c, own[c], _padded(links[c], most_links, most_nodes - 1), most_nodes) for c in range(len(data))
        ]
        present = np.array([[(row["y"] != IGNORED).any() for row in parts] for parts in rows])
        kept = [
            row
            for parts, there in zip(rows, present, strict=True)
            for row, keep in zip(parts, there, strict=True)
            if keep
        ]
        ends = np.cumsum(present.reshape(-1)).reshape(present.shape)
        bounds = np.concatenate([np.concatenate([[0], ends[:-1, -1]])[:, None], ends], axis=1).astype(np.int64)
        columns = {name: np.stack([row[name] for row in kept]) for name in kept[0]}
        return replace(data, columns=columns, bounds=bounds, order=None, description=f"{data.description}, as graphs")

    return graphs


def _links(nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The links inside a set of nodes, in both directions, in the numbers of that set."""
    inside = edges[np.isin(edges, nodes).all(axis=1)]
    local = np.searchsorted(nodes, inside)
    return np.concatenate([local, local[:, ::-1]])


def _padded(links: np.ndarray, length: int, nobody: int) -> np.ndarray:
    return np.concatenate([links, np.full((length - len(links), 2), nobody, dtype=links.dtype)])


def _rows(
    data: FederatedData, client: int, nodes: np.ndarray, links: np.ndarray, size: int
) -> list[dict[str, np.ndarray]]:
    features = np.zeros((size, data.columns["x"].shape[1]), dtype=np.float32)
    features[: len(nodes)] = data.columns["x"][nodes]
    mask = np.arange(size) < len(nodes)
    rows = []
    for part in PARTS:
        here = data.positions(client, part)
        classes = np.full(size, IGNORED, dtype=np.int64)
        classes[np.searchsorted(nodes, here)] = data.columns["y"][here]
        rows.append({"x": features, "edges": links, "mask": mask, "y": classes})
    return rows


_URL = "https://github.com/kimiyoung/planetoid/raw/master/data/"


def _official(name: str, sha256: str, size: int) -> File:
    return File(f"ind.{name}", (sha256,), size, f"{_URL}ind.{name}")


_PUBMED_FILES = (
    File("pubmed.npz", ("831740dc0afe660eef5ef8bbe6f038887481cb5b8e1131d623dbcd121faa7746",), 4526134),
    _official("pubmed.allx", "508e538e2abdccdd54c4d3e9f49d638b4af7107d85845f66ddea5a5152658b7e", 7578385),
    _official("pubmed.ally", "0c37bbe3b5014ec365e9d393cf4791925e5ed94fb194305d74f064a8d7b50f0e", 224739),
    _official("pubmed.tx", "4eb5f5d0f30f26497eb0ac6ac9719d09c67e284f1ed0385c93f3ef27a671da3d", 405505),
    _official("pubmed.ty", "ee2e0d4819d9fbcc403689c3bf2e49face401b605932f093bc58ab6461130fdd", 12135),
    _official("pubmed.graph", "5b89f0036ca22909471f1e6558eb42fa06e0c730a577bde5b058b40638f81dc9", 471808),
    _official("pubmed.test.index", "b101d421688bbaecbd82e8a18f1e282378d6830f3a37666f28ebc47f844341b5", 6000),
)
_CORA_FILES = (
    File("cora.npz", ("fa192ebb6ce797580ad6e09e675606531c05635860445439e1a7f083296044e7",), 89735),
    _official("cora.allx", "9419ba2f26f5c35243db64aba110e0f35a04851609e0dc5433450676ca6b8543", 257305),
    _official("cora.ally", "2b998f5cc7fedc86e7f97ca2498f47a1ffc1462c29e2d578b23bf3f62b6e7d71", 47959),
    _official("cora.tx", "b9afbaa4a400df991f6f02ef677e1e44da55ffc04801fd02f9e673987829226a", 148025),
    _official("cora.ty", "41f5ac76596a1699cc33f53084a2419e92961c42bb75f36fc38e616d348532ad", 28135),
    _official("cora.graph", "58f13302f39dde8852dad6fe6d15b89b077b6d7f837626bce671ef80344b383d", 59847),
    _official("cora.test.index", "297ce89af2b51a6a194181c7dbe1796c6a1cf9cd9349a88383b1b1e227867875", 5000),
)
_CITESEER_FILES = (File("citeseer.npz", ("e93679c5a9d7b0a9b6e704c32c5f8c8f46184c71dc20421d4a174f498dbf2ca5",), 176755),)
_planetoid = partial(
    DataSet,
    folder="planetoid",
    page="https://github.com/kimiyoung/planetoid",
    licence="MIT (planetoid repository); LINQS data, free for research",
    clients="Louvain communities",
)
PUBMED = _planetoid(
    name="pubmed",
    load=pubmed,
    files=_PUBMED_FILES,
    ways=(("pubmed.npz",), tuple(file.name for file in _PUBMED_FILES[1:])),
    citation="Namata et al., Query-driven Active Surveying (2012); Yang et al., Planetoid (2016)",
    about="19,717 papers, 44,324 links, 500 features, 3 classes",
)
CORA = _planetoid(
    name="cora",
    load=cora,
    files=_CORA_FILES,
    ways=(("cora.npz",), tuple(file.name for file in _CORA_FILES[1:])),
    citation="Sen et al., Collective Classification in Network Data (2008); Yang et al., Planetoid (2016)",
    about="2,708 papers, 5,278 links, 1,433 features, 7 classes",
)
CITESEER = _planetoid(
    name="citeseer",
    load=citeseer,
    files=_CITESEER_FILES,
    ways=(("citeseer.npz",),),
    citation="Sen et al., Collective Classification in Network Data (2008); Yang et al., Planetoid (2016)",
    about="3,327 papers, 4,552 links, 3,703 features, 6 classes",
)

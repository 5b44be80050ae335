"""Batches of a training: the whole graph at once, or clusters of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Data

from robust_diffusion.checks import check_whole
from robust_diffusion.errors import ConfigError


@runtime_checkable
class Batching(Protocol):
    """Cuts the graph that a model is trained on into the batches of an epoch."""

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches of an epoch; more than one can be shared out to several devices."""

    @property
    def fingerprint(self) -> str:
        """All that changes a training, as text; empty for the whole graph."""

    def loader(self, view: Data) -> DataLoader[Data]:
        """Yields the batches of an epoch, each a `Data` with x, y, edge_index and `mask`."""


class FullBatch:
    """The whole graph as the one batch of an epoch."""

    batches_per_epoch = 1
    fingerprint = ""

    def loader(self, view: Data) -> DataLoader[Data]:
        """Yields `view` itself."""
        # batch_size=None: the graph is the batch; nothing to collate.
        return DataLoader([view], batch_size=None)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Clusters:
    """Batches of METIS parts, drawn anew in each epoch, with all edges among the parts of a batch.

    A PDE's receptive field grows with layers, steps and stages, so that a sample of neighbours soon
    is the whole graph. Parts are cut where edges are few, and several of them in one batch keep
    most edges between parts in turn. Only training is cut: validation, tests and attacks see the
    whole graph.

    Reference: Cluster-GCN, arXiv:1905.07953.

    Args:
        num_parts: Parts of about equal size, at least 2 and at most the number of nodes.
        parts_per_batch: Parts that are joined in one batch, from 1 to `num_parts`.
        seed: Of METIS, at least 0; the draw of each epoch is of the training's own seed.

    Raises:
        ConfigError: A number out of range.
    """

    num_parts: int = 100
    parts_per_batch: int = 10
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("batching.num_parts", self.num_parts, at_least=2)
        check_whole("batching.parts_per_batch", self.parts_per_batch, at_least=1)
        check_whole("batching.seed", self.seed, at_least=0)
        if self.parts_per_batch > self.num_parts:
            raise ConfigError(
                f"batching.parts_per_batch={self.parts_per_batch}: there are only "
                f"batching.num_parts={self.num_parts}"
            )

    @property
    def batches_per_epoch(self) -> int:
        """The last batch of an epoch may have fewer parts."""
        return -(-self.num_parts // self.parts_per_batch)

    @property
    def fingerprint(self) -> str:
        """The three numbers."""
        return f"clusters-{self.num_parts}-{self.parts_per_batch}-{self.seed}"

    def loader(self, view: Data) -> DataLoader[Data]:
        """Yields the joined parts of each batch; METIS cuts `view` now.

        Raises:
            ConfigError: pymetis is missing, or the graph has fewer nodes than there are parts.
        """
        parts = Parts(view, metis_parts(view, self.num_parts, self.seed))
        # The sampler is over parts, so that Lightning can share them out to several processes.
        loader = DataLoader(
            cast(Dataset[int], range(len(parts))),
            batch_size=self.parts_per_batch,
            shuffle=True,
            collate_fn=parts.joined,
        )
        return cast(DataLoader[Data], loader)


class Parts:
    """A graph with its nodes by part, from which any parts can be joined.

    Args:
        view: The graph, with `mask`, and `degree` if that is of a larger graph.
        membership: The part of each node.
    """

    def __init__(self, view: Data, membership: NDArray[np.int64]) -> None:
        self._view = view
        self._adjacency = adjacency_of(view)
        by_part = np.argsort(membership, kind="stable")
        _, starts = np.unique(membership[by_part], return_index=True)
        # METIS may leave parts of a small graph empty; these are none.
        self._nodes = np.split(by_part, starts[1:])

    def __len__(self) -> int:
        """Number of parts."""
        return len(self._nodes)

    def joined(self, parts: Sequence[int]) -> Data:
        """The subgraph on the nodes of these parts, with every edge between two of them."""
        nodes = np.sort(np.concatenate([self._nodes[part] for part in parts]))
        among = self._adjacency[nodes][:, nodes].tocoo()
        index, view = torch.from_numpy(nodes), self._view
        edges = torch.from_numpy(np.stack([among.row, among.col]).astype(np.int64))
        assert view.x is not None
        assert isinstance(view.y, torch.Tensor)
        batch = Data(x=view.x[index], y=view.y[index], edge_index=edges, mask=view.mask[index])
        if "degree" in view:
            batch.degree = view.degree[index]
        return batch


def metis_parts(view: Data, num_parts: int, seed: int) -> NDArray[np.int64]:
    """The part of each node, in 0..num_parts - 1, by METIS: equal sizes, few edges cut.

    Raises:
        ConfigError: pymetis is missing, or the graph has fewer nodes than there are parts.
    """
    nodes = view.num_nodes
    assert nodes is not None
    if num_parts > nodes:
        raise ConfigError(
            f"batching.num_parts={num_parts}: the training graph has only {nodes} nodes; use fewer"
        )
    try:
        import pymetis  # only for clusters
    except ImportError as error:
        raise ConfigError(
            "batching=clusters: needs pymetis; pip install 'robust-diffusion[clusters]'"
        ) from error
    adjacency = adjacency_of(view)
    found = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices),
        options=pymetis.Options(seed=seed),
    )
    return np.asarray(found.vertex_part, dtype=np.int64)


def adjacency_of(view: Data) -> sp.csr_array:
    """Rows by source and columns by target, without self-loops, which METIS does not take."""
    assert view.edge_index is not None
    row, col = view.edge_index.numpy()
    off = row != col
    return sp.csr_array(
        (np.ones(int(off.sum()), dtype=np.int8), (row[off], col[off])),
        shape=(view.num_nodes, view.num_nodes),
    )

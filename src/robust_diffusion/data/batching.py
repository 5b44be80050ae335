"""Batches for training: the whole graph at once, or clusters of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Protocol, cast, runtime_checkable

import numpy as np
import scipy.sparse as sp
import torch
from annotated_types import Ge
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Data

from robust_diffusion.checks import Count, Natural, validated
from robust_diffusion.errors import ConfigError, needs_extra


@runtime_checkable
class Batching(Protocol):
    """Strategy that cuts the training graph into the batches of an epoch."""

    @property
    def fingerprint(self) -> str:
        """All settings that affect training, as text; empty for the whole graph."""

    def loader(self, view: Data) -> DataLoader[Data]:
        """Create a loader of batches, each a `Data` with x, y, edge_index and `mask`."""


class FullBatch:
    """The whole graph as the only batch of an epoch."""

    fingerprint = ""

    def loader(self, view: Data) -> DataLoader[Data]:
        """Create a loader of `view` itself."""
        # batch_size=None: the graph is the batch; nothing to collate.
        return DataLoader([view], batch_size=None)  # type: ignore[arg-type]


@validated("batching")
@dataclass(frozen=True)
class Clusters:
    """Batches of METIS parts, redrawn in each epoch, with all edges among the parts of a batch.

    A PDE's receptive field grows with layers, steps and stages, so that a sample of neighbours is
    soon the whole graph. METIS cuts parts where edges are few. Joining several random parts per
    batch includes the edges between parts in turn. Only training is cut: validation, tests and
    attacks see the whole graph.

    Reference: Cluster-GCN, arXiv:1905.07953.

    Args:
        num_parts: Parts of about equal size, at least 2 and at most the number of nodes.
        parts_per_batch: Parts that are joined in one batch, from 1 to `num_parts`.
        seed: Seed of METIS, at least 0; the batches of each epoch use the seed of the training.

    Raises:
        ConfigError: A number is out of range.
    """

    num_parts: Annotated[int, Ge(2)] = 100
    parts_per_batch: Count = 10
    seed: Natural = 0

    def __post_init__(self) -> None:
        if self.parts_per_batch > self.num_parts:
            raise ConfigError(
                f"batching.parts_per_batch={self.parts_per_batch}: there are only "
                f"batching.num_parts={self.num_parts}"
            )

    @property
    def fingerprint(self) -> str:
        """The three numbers."""
        return f"clusters-{self.num_parts}-{self.parts_per_batch}-{self.seed}"

    def loader(self, view: Data) -> DataLoader[Data]:
        """Cut `view` by METIS, and create a loader of the joined parts of each batch."""
        adjacency = _adjacency(view)
        membership = metis_parts(adjacency, self.num_parts, self.seed)
        by_part = np.argsort(membership, kind="stable")
        _, starts = np.unique(membership[by_part], return_index=True)
        # METIS may leave parts of a small graph empty; these are skipped.
        nodes = np.split(by_part, starts[1:])

        loader = DataLoader(
            cast(Dataset[int], range(len(nodes))),
            batch_size=self.parts_per_batch,
            shuffle=True,
            collate_fn=partial(_joined, view, adjacency, nodes),
        )
        return cast(DataLoader[Data], loader)


def metis_parts(adjacency: sp.csr_array, num_parts: int, seed: int) -> NDArray[np.int64]:
    """Assign each node a part in 0..num_parts - 1 by METIS, with equal sizes and few cut edges."""
    if num_parts > adjacency.shape[0]:
        raise ConfigError(
            f"batching.num_parts={num_parts}: the training graph has only {adjacency.shape[0]} "
            "nodes; use fewer"
        )
    with needs_extra("clusters", "batching=clusters"):
        import pymetis
    partition = pymetis.part_graph(
        num_parts,
        pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices),
        options=pymetis.Options(seed=seed),
    )
    return np.asarray(partition.vertex_part, dtype=np.int64)


def _adjacency(view: Data) -> sp.csr_array:
    """Return the adjacency matrix without self-loops, which METIS does not accept."""
    assert view.edge_index is not None
    row, col = view.edge_index.numpy()
    off = row != col
    ones = np.ones(int(off.sum()), dtype=np.int8)
    return sp.csr_array((ones, (row[off], col[off])), shape=(view.num_nodes, view.num_nodes))


def _joined(
    view: Data, adjacency: sp.csr_array, nodes: Sequence[NDArray[np.int64]], parts: Sequence[int]
) -> Data:
    """Return the subgraph induced by the nodes of these parts."""
    kept_nodes = np.sort(np.concatenate([nodes[part] for part in parts]))
    among = adjacency[kept_nodes][:, kept_nodes].tocoo()
    edges = torch.from_numpy(np.stack([among.row, among.col]).astype(np.int64))
    index = torch.from_numpy(kept_nodes)
    attributes = {key: view[key][index] for key in ("x", "y", "mask", "degree") if key in view}
    return Data(edge_index=edges, **attributes)

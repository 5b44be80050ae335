"""The LightningDataModule: one graph and its inductive views."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Literal

import pytorch_lightning as pl
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader
from torch_geometric.data import Data
from torch_geometric.utils import degree, subgraph

from robust_diffusion.checks import check_name, validated
from robust_diffusion.data.batching import Batching, FullBatch
from robust_diffusion.data.normalize import (
    FeatureScale,
    feature_scale,
    row_frequencies,
)
from robust_diffusion.data.split import check_difficulty, split_by_degree, split_hash, target_nodes
from robust_diffusion.data.validate import Served, checked_graph, node_index, split_of
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.system.tensor_hashes import tensor_hash

_EdgeValues = Literal["ones", "ids"]
_Normalization = Literal["arctan", "frequencies"]
Stage = Literal["train", "val", "test"]


@validated("data")
class GraphDataModule(Served, pl.LightningDataModule):  # type: ignore[misc] # a name, not None
    """Datamodule of one graph: train nodes, then train and val nodes, then the whole graph.

    With `transductive`, it serves the whole graph at every stage, and only the scored nodes differ.
    Each loader yields one `Data` with x, y, edge_index and `mask`, the nodes that are scored.

    Args:
        source: Function that returns the checked graph with raw features and its split.
        name: Name of the dataset in records and tables.
        difficulty: Test nodes that are scored and attacked: GRB's easy, medium, hard or full, or
            others by margin or draw; see `data.split.target_nodes`.
        degree_leak: Serve the degrees of the whole graph to models that normalise by degree, as
            GRB does; otherwise the graph is cut first.
        edge_values: Values of the adjacency matrix: `ones`, or `ids` for edge numbers, as in the
            authors' code on graphs from DGL; see `models.edge_values`.
        normalize: `arctan` for GRB's map of the features to (-1, 1); `frequencies` to divide each
            row by its sum; `None` for raw features.
        batching: Batches for training; `None` for the whole train view at once. Validation and
            tests always use the whole graph.
        transductive: Let training and validation see the whole graph, without labels of the others.

    Raises:
        ConfigError: An invalid name, an unknown difficulty, edge value or normalisation, or a
            transductive graph with clusters or edge numbers.

    Examples:
        >>> from robust_diffusion.data import GraphDataModule
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> datamodule = GraphDataModule.from_data(data, normalize="arctan")
        >>> datamodule.num_features, datamodule.num_classes
        (8, 7)
    """

    def __init__(
        self,
        source: Callable[[], Data],
        *,
        name: str,
        difficulty: str = "easy",
        degree_leak: bool = False,
        edge_values: _EdgeValues = "ones",
        normalize: _Normalization | None = "arctan",
        batching: Batching | None = None,
        transductive: bool = False,
    ) -> None:
        super().__init__()
        self.name = check_name("dataset.name", name)
        self.difficulty = check_difficulty(difficulty)
        self.degree_leak = degree_leak
        self.edge_values = edge_values
        self.normalize = normalize
        self.batching = batching or FullBatch()
        if edge_values == "ids" and self.batching.fingerprint:
            raise ConfigError(
                "batching=clusters, data.edge_values=ids: numbers of edges are those of the whole "
                "graph; use batching=full or fidelity.edge_values=ones"
            )
        self.transductive = transductive
        if transductive and (edge_values == "ids" or self.batching.fingerprint):
            raise ConfigError(
                "data.transductive=true: every stage is the whole graph; use batching=full and "
                "fidelity.edge_values=ones"
            )
        self._source = source
        self._graph: Data | None = None
        self._views: dict[Stage, Data] = {}
        self._scale: FeatureScale | None = None
        self._training: DataLoader[Data] | None = None
        self._targets: Tensor | None = None

    @classmethod
    def from_data(
        cls,
        data: Data,
        *,
        name: str = "data",
        difficulty: str | None = None,
        normalize: _Normalization | None = None,
        split_seed: int = 0,
        batching: Batching | None = None,
        transductive: bool = False,
    ) -> "GraphDataModule":
        """Create a datamodule from a PyG `Data`, which is checked at once and not modified.

        Args:
            data: x, y, undirected edge_index, and a split: `train_mask`, `val_mask`, `test_mask`,
                or node numbers in `train_idx`, `index_train` or `idx_train` and so on.
            name: Name in messages and records.
            difficulty: Test nodes to score, as for the class; if `data` has no split, nodes are
                split by degree as in GRB. `None` for the whole test set, which requires a split.
            normalize: Normalisation, as for the class. It is `None` by default, so that the model
                is trained on the same features that `evaluate(model, data)` passes to it.
            split_seed: Seed of the split by degree.
            batching: Batches for training; `None` for the whole train view at once.
            transductive: Let training and validation see the whole graph.

        Raises:
            DataError: The graph is invalid or has no split; see `checked_graph`.
            ConfigError: A value is invalid.
        """
        splits = split_of(data.to_dict(), data.num_nodes or 0) if isinstance(data, Data) else {}
        graph = checked_graph(data, splits)
        if not splits and difficulty is None:
            node_index(data, "train")  # raises an error about the missing split
        if not splits:
            split_by_degree(graph, split_seed, where="data")
        return cls(
            partial(copy.copy, graph),
            name=name,
            difficulty=difficulty or "full",
            normalize=normalize,
            batching=batching,
            transductive=transductive,
        )

    def poisoned(self, x: Tensor, edge_index: Tensor) -> "GraphDataModule":
        """Return a copy with another graph of the same nodes at every stage, x normalised."""
        other = copy.copy(self)
        other._training = None
        other._serve(Data(**self.graph.to_dict() | {"x": x, "edge_index": edge_index}))
        return other

    def setup(self, stage: str | None = None) -> None:
        """Load, normalise and cut the graph, once."""
        if self._graph is not None:
            return
        graph = copy.copy(self._source())  # the source may return the same graph twice
        if self.normalize == "frequencies":
            graph.x = row_frequencies(graph.x, str(self.name))
        elif self.normalize is not None:
            try:
                self._scale = feature_scale(graph.x)
            except DataError as error:
                raise DataError(f"dataset={self.name}: {error}") from error
            graph.x = self._scale.normalize(graph.x)
        self._serve(graph)

    def _serve(self, graph: Data) -> None:
        """Select the target nodes; views are cut when they are needed, since they copy features."""
        if self._targets is None:  # a poisoned graph keeps the targets of the clean graph
            self._targets = target_nodes(graph, self.difficulty, str(self.name))
        self._graph, self._views = graph, {}

    @property
    def graph(self) -> Data:
        """The whole graph, features normalised."""
        self.setup()
        assert self._graph is not None
        return self._graph

    @property
    def feature_scale(self) -> FeatureScale | None:
        """Normalisation of the features; `None` if they are left as they are."""
        self.setup()
        return self._scale

    @property
    def target_nodes(self) -> Int[Tensor, " t"]:
        """Test nodes that are scored, and attacked."""
        self.setup()
        assert self._targets is not None
        return self._targets

    def __repr__(self) -> str:
        if self._graph is None:
            return f"GraphDataModule({self.name}, not loaded)"
        graph, kind = self._graph, "transductive" if self.transductive else "inductive"
        return (
            f"GraphDataModule({self.name}: {graph.num_nodes:,} nodes, {graph.num_edges // 2:,} "
            f"edges, {self.num_features} features, {self.num_classes} classes, "
            f"{len(self.target_nodes):,} target nodes ({self.difficulty}), {kind})"
        )

    @property
    def num_features(self) -> int:
        """Number of features per node."""
        return self.graph.num_features  # type: ignore[no-any-return]

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return self.graph.num_classes  # type: ignore[no-any-return]

    @property
    def split_hash(self) -> str:
        """Short hash of the split."""
        parts = [key for key in self.graph.to_dict() if key.startswith("index_")]
        return split_hash({key: self.graph[key].numpy() for key in parts})

    @property
    def split_drawn(self) -> bool:
        """True if the split was drawn by degree, false if it came with the graph."""
        return "split_drawn" in self.graph

    @property
    def fingerprint(self) -> str:
        """Hash of everything that training on this graph sees."""
        graph = self.graph
        hashes = [tensor_hash(graph.x, graph.edge_index, graph.y)[:32], self.split_hash]
        values = "" if self.edge_values == "ones" else self.edge_values
        read = ["leak" if self.degree_leak else "strict", values, self.batching.fingerprint]
        read += ["transductive"] * self.transductive
        return "-".join([*hashes, *filter(None, read)])

    def view(self, stage: Stage) -> Data:
        """Return the part of the graph that a model may see at a stage."""
        if stage not in self._views:
            self._views[stage] = self._cut(stage)
        return self._views[stage]

    def _cut(self, stage: Stage) -> Data:
        graph = self.graph
        if stage == "test":
            seen, scored = torch.arange(graph.num_nodes), self.target_nodes
        else:
            scored = graph[f"index_{stage}"]
            seen = torch.cat([graph.index_train, graph.index_val]).sort().values
            seen = graph.index_train if stage == "train" else seen
            seen = torch.arange(graph.num_nodes) if self.transductive else seen
        leak = self.degree_leak and stage != "test"
        return induced_view(graph, seen, scored, degree_leak=leak)

    def train_dataloader(self) -> DataLoader[Data]:
        """Return a loader of the train view, all nodes scored, in one or several batches."""
        if self._training is None:  # cached, since surrogates also train and cutting takes long
            self._training = self.batching.loader(self.view("train"))
        return self._training

    def val_dataloader(self) -> DataLoader[Data]:
        """Return a loader of the subgraph of train and val nodes, the latter scored."""
        return FullBatch().loader(self.view("val"))

    def test_dataloader(self) -> DataLoader[Data]:
        """Return a loader of the whole clean graph, the target nodes scored."""
        return FullBatch().loader(self.view("test"))

    predict_dataloader = test_dataloader


def induced_view(
    data: Data, nodes: Int[Tensor, " k"], scored: Int[Tensor, " s"], *, degree_leak: bool
) -> Data:
    """Return the subgraph on sorted `nodes`, with a mask of the scored nodes.

    A proper subgraph has `n_id`, its nodes in the whole graph. With `degree_leak`, it also has the
    degrees of the whole graph, self-loop included, as `degree`: GRB normalises the whole adjacency
    before it cuts it, so test degrees leak into training.
    """
    n = data.num_nodes
    assert n is not None
    assert data.x is not None
    assert data.edge_index is not None
    assert isinstance(data.y, Tensor)
    mask = torch.zeros(n, dtype=torch.bool)
    mask[scored] = True
    if nodes.numel() == n:
        # The whole graph shares its features instead of copying them.
        return Data(x=data.x, y=data.y, edge_index=data.edge_index, mask=mask)
    edge_index, _ = subgraph(nodes, data.edge_index, relabel_nodes=True, num_nodes=n)
    view = Data(x=data.x[nodes], y=data.y[nodes], edge_index=edge_index, mask=mask[nodes])
    view.n_id = nodes
    if degree_leak:
        view.degree = degree(data.edge_index[1], n, dtype=data.x.dtype)[nodes] + 1
    return view

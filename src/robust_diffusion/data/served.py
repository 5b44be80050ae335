"""A graph with its target nodes, as an evaluation sees it."""

from abc import ABC, abstractmethod

from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data


class Served(ABC):
    """Base of the `GraphDataModule` without Lightning, whose import takes a second.

    Attributes:
        name: The dataset's name.
    """

    name: str

    @property
    @abstractmethod
    def graph(self) -> Data:
        """The whole graph, features normalised."""

    @property
    @abstractmethod
    def target_nodes(self) -> Int[Tensor, " t"]:
        """Test nodes that are scored, and attacked."""

"""An attacked graph read from a file."""

from pathlib import Path
from typing import ClassVar

from torch import Generator

from robust_diffusion.attacks.audit.check import UndirectedEdges
from robust_diffusion.attacks.audit.files import read_perturbed
from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Task, Victim
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.modification.base import ModificationAttack
from robust_diffusion.checks import validated
from robust_diffusion.errors import AttackError, ConfigError


@validated("attacks.{self.name}")
class GivenGraph(ModificationAttack):
    """An attacked graph of the same clean graph, made elsewhere and read from a file.

    The file is read as in `robust-diffusion audit`, without executing any code in it. The graph is
    then audited and its budget counted like that of any attack.

    Reference: of this project; cite the source of the graph.

    Args:
        path: `*adj*.npz` or `*adj*.pkl`, n x n, with or without `features*.npy`; required.
        data_dir: Folder that `path` is relative to; `None` for a path relative to the working
            directory.

    Raises:
        ConfigError: `path` is `None`.

    Examples:
        >>> from robust_diffusion.attacks import GivenGraph
        >>> GivenGraph(path="cora_meta_adj_0.05.npz").kind
        'modification'
    """

    name = "given"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __init__(self, *, path: str | Path | None, data_dir: str | Path | None = None) -> None:
        if path is None:
            raise ConfigError("attacks.given.path=null: name the file of an attacked graph")
        self.path = Path(data_dir or "", path)

    def modify(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Read the file.

        Raises:
            DataError: The file is missing, damaged, or belongs to another graph.
            AttackError: The file has edge weights or more nodes, or its graph is not simple and
                undirected.
        """
        graph = read_perturbed(self.path, task.graph)
        if graph.kind != "modification":
            raise AttackError(f"{self.path}: has injected nodes; name a file of n x n")
        n = task.x.size(0)
        for violation in (*graph.violations, *UndirectedEdges(graph.edge_index, n, n).violations):
            raise AttackError(f"{self.path}: {violation.message}")
        return graph.x.to(task.x.device), graph.edge_index.to(task.x.device)

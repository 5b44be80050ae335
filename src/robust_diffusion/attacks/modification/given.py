"""A graph from a file."""

from pathlib import Path
from typing import ClassVar

from torch import Generator

from robust_diffusion.attacks.audit.check import UndirectedEdges
from robust_diffusion.attacks.audit.files import read_perturbed
from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Problem
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.modification.base import ModificationAttack
from robust_diffusion.errors import AttackError, ConfigError


class GivenGraph(ModificationAttack):
    """The attacked graph that someone else made of the same clean one, from its file.

    The file is read as `robust-diffusion audit` reads it, and audited and counted as any attack's
    graph is; nothing in it is run.

    Reference: of this project; cite the source of the graph.

    Args:
        path: `*adj*.npz` or `*adj*.pkl`, n x n, with or without `features*.npy`; must be given.
        data_dir: Folder that `path` is in, of which runs are no others; `None` for a path as it
            is, by whose content they are.

    Raises:
        ConfigError: No path.

    Examples:
        >>> from robust_diffusion import GivenGraph
        >>> GivenGraph(path="cora_meta_adj_0.05.npz").kind
        'modification'
    """

    name = "given"
    needs: ClassVar[frozenset[Need]] = frozenset()

    def __init__(self, *, path: str | Path | None, data_dir: str | Path | None = None) -> None:
        if path is None:
            raise ConfigError("attacks.given.path=null: name the file of an attacked graph")
        self.path = Path(data_dir or "", path)

    def modify(self, problem: Problem, budget: Budget, generator: Generator) -> FeaturesAndEdges:
        """Read the file.

        Raises:
            DataError: It is missing, damaged, or of another graph.
            AttackError: It holds edge weights, further nodes, or no simple undirected graph.
        """
        graph = read_perturbed(self.path, problem.data)
        if graph.kind != "modification":
            raise AttackError(f"{self.path}: has injected nodes; name a file of n x n")
        n = problem.x.size(0)
        for violation in (*graph.violations, *UndirectedEdges(graph.edge_index, n, n).violations):
            raise AttackError(f"{self.path}: {violation.message}")
        return graph.x.to(problem.x.device), graph.edge_index.to(problem.x.device)

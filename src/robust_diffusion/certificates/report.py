"""The report of a certificate: a table of budgets, beside what attacks have found."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from robust_diffusion import __version__
from robust_diffusion.certificates.base import Smoothing
from robust_diffusion.certificates.bounds import ClassBounds
from robust_diffusion.checks import check_whole
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.report import RobustnessReport
from robust_diffusion.files import write_whole

if TYPE_CHECKING:
    import pandas as pd

REPORT = "certificate.json"
"""Name of the report's file."""


@dataclass(frozen=True)
class Attacked:
    """The worst that attacks do to the smoothed classifier with one budget.

    Args:
        total: Of `Smoothing.budgets`.
        accuracy: Of the majority of fresh draws, the lowest of all attacks, in 0..1.
        attack: The attack that reached it; "" if none was worse than the clean graph.
        broken: Most certified nodes that one attack turned over, expected at most alpha of them.
    """

    total: int
    accuracy: float
    attack: str
    broken: int


@dataclass(frozen=True, eq=False)
class CertificateReport:
    """Result of `certify`.

    Args:
        model: Class of the classifier that is smoothed.
        scheme: Noise, numbers of draws and budgets.
        bounds: Of the class probabilities of each target.
        votes: Draws by class, of each target.
        labels: True classes of the targets.
        nodes: Numbers of the targets.
        plain_accuracy: Of the classifier without noise, in 0..1.
        attacked: By budget, if attacks were run.
        seed: Of all draws.
        dataset: Name of the datamodule's dataset; "" of a graph of one's own.
        clean_graph: Hash of features, edges, classes and targets.
        weights: Hash of the model's weights.
        seconds: Wall time by step of this call.

    Examples:
        >>> from robust_diffusion import GCN, SparseSmoothing, certify
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> scheme = SparseSmoothing(samples=20, max_additions=1)
        >>> report = certify(GCN(8, 8, 7), data, certificate=scheme, progress=False)
        >>> report.certified(additions=1, deletions=0).shape == report.nodes.shape
        True
    """

    model: str
    scheme: Smoothing
    bounds: ClassBounds
    votes: Int[Tensor, "t c"]
    labels: Int[NDArray[np.int64], " t"]
    nodes: Int[Tensor, " t"]
    plain_accuracy: float
    attacked: Sequence[Attacked]
    seed: int
    dataset: str
    clean_graph: str
    weights: str
    seconds: Mapping[str, float]
    attacks: Sequence[RobustnessReport] = ()

    @property
    def clean_accuracy(self) -> float:
        """Accuracy of the majority of the draws, without abstention, in 0..1."""
        return float((self.votes.argmax(1).numpy() == self.labels).mean())

    @property
    def abstained(self) -> float:
        """Share of the targets at which the draws do not tell the class, in 0..1."""
        return float(self.bounds.abstained.mean())

    def certified(self, **budget: int) -> Bool[NDArray[np.bool_], " t"]:
        """Targets whose class no perturbation of up to this budget changes, right or wrong.

        Args:
            budget: additions and deletions, or nodes and edges_per_node, each at least 0.

        Raises:
            ConfigError: Other names, or a number out of range.
        """
        needed = next(iter(self.scheme.grid())).keys()
        if budget.keys() != needed:
            raise ConfigError(
                f"budget: is of {', '.join(budget)}; certificate={self.scheme.name} needs "
                f"{' and '.join(needed)}"
            )
        for key, count in budget.items():
            check_whole(f"budget.{key}", count, at_least=0)
        return self.scheme.certified(self.bounds, budget)

    def certified_accuracy(self, total: int) -> float:
        """Share of the targets that are right whatever an attack does with this total, in 0..1."""
        return self._right(self.scheme.certified_at(self.bounds, total))

    def to_frame(self) -> "pd.DataFrame":
        """One row per budget of the grid, with the certified share and accuracy, in 0..1."""
        import pandas as pd

        rows: list[dict[str, Any]] = []
        for budget in self.scheme.grid():
            certified = self.certified(**budget)
            shares: dict[str, Any] = {
                "certified": float(certified.mean()),
                "certified_accuracy": self._right(certified),
            }
            rows.append({**budget, **shares})
        return pd.DataFrame(rows)

    def curve(self) -> "pd.DataFrame":
        """One row per budget that was listed, clean first: certified and attacked accuracy."""
        import pandas as pd

        found = {of.total: of for of in self.attacked}
        clean: dict[str, Any] = {"budget": 0, "certified": self.certified_accuracy(0)}
        unharmed = {"attacked": self.clean_accuracy, "attack": "", "broken": 0}
        rows = [clean | unharmed]
        for total in (total for total in self.scheme.budgets if total):
            row: dict[str, Any] = {"budget": total, "certified": self.certified_accuracy(total)}
            if (of := found.get(total)) is not None:
                row |= {"attacked": of.accuracy, "attack": of.attack, "broken": of.broken}
            rows.append(row)
        frame = pd.DataFrame(rows)
        return frame if self.attacked else frame[["budget", "certified"]]

    def __str__(self) -> str:
        """The curve, in %, below lines that say of what."""
        frame = self.curve()
        for column in ("certified", "attacked"):
            if column in frame:
                frame[column] = [f"{100 * value:.2f}" for value in frame[column]]
        noise = ", ".join(f"{key}={value:g}" for key, value in self.scheme.probabilities.items())
        lines = [
            f"{self.model}, {len(self.labels)} target nodes, {self.scheme.name} ({noise}), "
            f"{self.scheme.samples} draws, each node's certificate true with "
            f"{100 * (1 - self.scheme.alpha):g} %",
            f"accuracy {100 * self.plain_accuracy:.2f} % without noise, "
            f"{100 * self.clean_accuracy:.2f} % smoothed; abstained {100 * self.abstained:.2f} %",
            f"accuracy in % by {self.scheme.unit}",
        ]
        return "\n".join([*lines, frame.to_string(index=False)])

    def to_json(self) -> str:
        """The record: all but the votes of each node."""
        record = {
            "model": self.model,
            "dataset": self.dataset,
            "certificate": self.scheme.name,
            "unit": self.scheme.unit,
            "options": asdict(self.scheme),
            "plain_accuracy": self.plain_accuracy,
            "clean_accuracy": self.clean_accuracy,
            "abstained": self.abstained,
            "curve": self.curve().to_dict(orient="records"),
            "grid": self.to_frame().to_dict(orient="records"),
            "attacked": [asdict(of) for of in self.attacked],
            "num_targets": len(self.labels),
            "seed": self.seed,
            "clean_graph": self.clean_graph,
            "weights": self.weights,
            "seconds": dict(self.seconds),
            "version": __version__,
        }
        return json.dumps(record, indent=2, allow_nan=False)

    def save(self, path: str | Path) -> Path:
        """Write `certificate.json` into a folder, which is returned.

        Raises:
            ConfigError: It cannot be written.
        """
        write_whole(Path(path) / REPORT, self.to_json() + "\n", option="certificate.save")
        return Path(path)

    def _right(self, certified: Bool[NDArray[np.bool_], " t"]) -> float:
        return float((certified & (self.bounds.predicted == self.labels)).mean())

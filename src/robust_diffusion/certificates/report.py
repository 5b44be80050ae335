"""Report of a certificate, with certified and attacked accuracies, and tables of reports."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int
from pydantic import Field
from pydantic_core import from_json
from torch import Tensor

from robust_diffusion import __version__
from robust_diffusion.attacks.task import accuracy
from robust_diffusion.certificates.base import MOST_SEARCHED, ClassBounds, Smoothing
from robust_diffusion.certificates.collective import Collective
from robust_diffusion.certificates.locality import ISOLATION, Locality
from robust_diffusion.checks import Natural, Share, check_value
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.evaluation.report import LARGEST, RobustnessReport, new_axes
from robust_diffusion.records.schema import Schema, UnitShare, misfit
from robust_diffusion.system.files import read_limited, write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_REPORT = "certificate.json"
"""Name of the report's file."""

RECORDED = (
    *("model", "dataset", "plain_accuracy", "clean_accuracy", "abstained", "radius", "largest"),
    *("num_edges", "sees_no_edge", "local", "seed", "clean_graph", "weights", "seconds"),
)
"""Attributes of a report that are written to its file unchanged."""

NOTHING_FELL = "no attack did anything to the smoothed accuracy, so `broken` checks nothing"


class _Point(Schema):
    budget: int
    certified: UnitShare
    collective: UnitShare | None = None
    attacked: UnitShare | None = None


class _Saved(Schema):
    """Part of a saved report that tables show."""

    certificate: str
    unit: str
    plain_accuracy: UnitShare
    clean_accuracy: UnitShare
    abstained: UnitShare
    curve: Annotated[list[_Point], Field(min_length=1)]


@dataclass(frozen=True)
class Attacked:
    """Worst case of attacks on the smoothed classifier with one budget."""

    total: int  # one of `Smoothing.budgets`
    accuracy: float  # lowest over all attacks, by the majority of fresh draws, in 0..1
    attack: str  # the attack that reached it; "" if none was worse than the clean graph
    broken: int  # most certified nodes changed by one attack; the expected share is at most alpha


@dataclass(frozen=True, eq=False)
class CertificateReport:
    """Result of `certify`.

    Args:
        model: Class of the classifier that is smoothed.
        scheme: Noise, numbers of draws and budgets.
        bounds: Bounds on the class probabilities of each target.
        votes: Number of draws by class, for each target.
        labels: True classes of the targets.
        nodes: Numbers of the targets.
        num_edges: Undirected edges of the graph.
        sees_no_edge: Expected share of the targets that lose all edges to the noise, in 0..1.
        plain_accuracy: Accuracy of the classifier without noise, in 0..1.
        clean_accuracy: Accuracy of the majority of the draws, without abstention, in 0..1.
        local: Whether the targets are a sample that was attacked one node at a time.
        locality: Influence of nodes without edges, which `bi_smoothing` assumes to be none.
        attacked: Worst case by budget, if attacks were run.
        seed: Seed of all draws.
        dataset: Name of the datamodule's dataset; "" for a custom graph.
        clean_graph: Hash of features, edges, classes and targets.
        weights: Hash of the model's weights.
        seconds: Wall time by step of this call.
        attacks: Reports of the attacks by budget.
        collective: Joint effect of one attack on all targets; `None` for schemes other than
            `bi_smoothing`, for a model in which connected components influence each other, for
            `local`, or if the bound is infinite.

    Examples:
        >>> from robust_diffusion import certify
        >>> from robust_diffusion.certificates import SparseSmoothing
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> scheme = SparseSmoothing(samples=20, max_additions=1)
        >>> report = certify(GCN(8, 8, out_channels=7), data, certificate=scheme, progress=False)
        >>> report.certified(additions=1, deletions=0).shape == report.nodes.shape
        True
    """

    model: str
    scheme: Smoothing
    bounds: ClassBounds
    votes: Int[Tensor, "t c"]
    labels: Int[np.ndarray, " t"]
    nodes: Int[Tensor, " t"]
    num_edges: int
    sees_no_edge: float
    plain_accuracy: float
    clean_accuracy: float
    local: bool
    locality: Locality
    attacked: Sequence[Attacked]
    seed: int
    dataset: str
    clean_graph: str
    weights: str
    seconds: Mapping[str, float]
    attacks: Sequence[RobustnessReport] = ()
    collective: Collective | None = None

    @property
    def abstained(self) -> float:
        """Share of the targets at which the draws do not determine the class, in 0..1."""
        return float(self.bounds.abstained.mean())

    @property
    def largest(self) -> int:
        """Largest total at which the scheme can certify a node of any model, if all draws agree.

        Totals above 50 are not tried.
        """
        return self.scheme.largest(self.votes.size(1))

    @property
    def radius(self) -> float:
        """Average certified radius: the largest certified total of each target, 0 if misclassified.

        Totals above `largest` do not count.
        """
        return sum(self.certified_accuracy(total) for total in range(1, self.largest + 1))

    def certified(self, **budget: int) -> Bool[np.ndarray, " t"]:
        """Return the targets whose class, correct or not, no perturbation within a budget changes.

        Args:
            budget: additions and deletions, or nodes and edges_per_node, each at least 0.

        Raises:
            ConfigError: A name is unknown, or a number is out of range.
        """
        needed = self.scheme.mixes(0)[0].keys()
        if budget.keys() != needed:
            raise ConfigError(
                f"budget: is of {', '.join(budget)}; certificate={self.scheme.name} needs "
                f"{' and '.join(needed)}"
            )
        for key, count in budget.items():
            check_value(f"budget.{key}", count, Natural)
        return self.scheme.certified(self.bounds, budget)

    def certified_accuracy(self, total: int) -> float:
        """Return the share of targets that stay correct under any attack of this total, in 0..1."""
        return self._right(self.scheme.certified_at(self.bounds, total))

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with certified share and accuracy, in 0..1, per budget of the grid."""
        rows: list[dict[str, float]] = []
        for budget in self.scheme.grid():
            certified = self.certified(**budget)
            accuracies = {"certified_accuracy": self._right(certified), **self._of_all(budget)}
            rows.append({**budget, "certified": certified.mean(), **accuracies})
        return pd.DataFrame(rows)

    def curve(self) -> pd.DataFrame:
        """Return a frame with certified and attacked accuracy per listed budget, clean first."""
        by_total = {a.total: a for a in (Attacked(0, self.clean_accuracy, "", 0), *self.attacked)}
        rows: list[dict[str, Any]] = []
        for total in (0, *filter(None, self.scheme.budgets)):
            collective = self._of_all(self.scheme.mixes(total)[0])
            rows.append(
                {"budget": total, "certified": self.certified_accuracy(total), **collective}
            )
            if self.attacked:
                worst = by_total[total]
                rows[-1].update(attacked=worst.accuracy, attack=worst.attack, broken=worst.broken)
        return pd.DataFrame(rows)

    def _of_all(self, budget: Mapping[str, int]) -> dict[str, float]:
        """Return the collective accuracy under one attack on all targets, if there is a bound."""
        return {"collective": self.collective.accuracy(**budget)} if self.collective else {}

    def __str__(self) -> str:
        """Show the curve, in %, below a description of the setting."""
        return "\n".join([*self._setting(), self._table().to_string(index=False), *self._remarks()])

    def _repr_html_(self) -> str:
        """Show the text of `print(report)` in a notebook, with the curve as a table."""
        before, after = ("<br>".join(map(escape, x)) for x in (self._setting(), self._remarks()))
        return f"<p>{before}</p>{self._table().to_html(index=False)}<p>{after}</p>"

    def _table(self) -> pd.DataFrame:
        frame = self.curve()
        for column in {"certified", "collective", "attacked"} & set(frame):
            frame[column] = frame[column].map(_percent)
        return frame

    def _remarks(self) -> list[str]:
        """Return what a reader must know of the attacks, below the table."""
        return [NOTHING_FELL] if nothing_fell(self.curve().to_dict(orient="records")) else []

    def _setting(self) -> list[str]:
        limit = f"of any model at most {self.largest}"
        if self.largest == MOST_SEARCHED:
            limit = f"of at most {MOST_SEARCHED}, beyond which none are tried"
        budgets = [report.budget for report in self.attacks]
        injected = {budget.limits for budget in budgets if budget.max_injected_nodes}
        noise = ", ".join(f"{key}={value:g}" for key, value in self.scheme.probabilities.items())
        return [
            f"{self.model}, {len(self.labels)} target nodes, {self.scheme.name} ({noise}), "
            f"{self.scheme.samples} draws, each node's certificate true with "
            f"{100 * (1 - self.scheme.alpha):g} %",
            f"accuracy {_percent(self.plain_accuracy)} % without noise, "
            f"{_percent(self.clean_accuracy)} % smoothed; abstained {_percent(self.abstained)} %",
            f"noise leaves {100 * self.scheme.survival(1):.3g} % of {self.num_edges} edges, and "
            f"none at {100 * self.sees_no_edge:.1f} % of the targets",
            f"average certified radius {self.radius:.2f}, {limit}",
            *[f"assumed: {ISOLATION}; checked: {self.locality}"][: int(self._needs_isolation)],
            *["attacks inject features {:.4g} to {:.4g}".format(*limits) for limits in injected],
            f"accuracy in % by {self._axis()}",
        ]

    def _axis(self) -> str:
        return f"{self.scheme.unit}{', of one node at a time' if self.local else ''}"

    def plot(self, ax: "Axes | None" = None, *, mlp: float | None = None) -> "Axes":
        """Plot certified, collective and attacked accuracy in % against the budget.

        Needs Matplotlib (`pip install 'robust-diffusion[report]'`). The certified curves are lower
        bounds of the smoothed classifier's accuracy in the worst case, true for each node with
        probability 1 - alpha; the attacked accuracies are upper bounds.

        Args:
            ax: Where to draw; `None` for a new figure.
            mlp: Accuracy in 0..1 of an MLP on the same targets, drawn as a dashed line.

        Raises:
            ConfigError: `mlp` is not in 0..1.
        """
        mlp = None if mlp is None else check_value("mlp", mlp, Share)
        ax, curve = ax or new_axes(), self.curve()
        step: dict[str, Any] = {"drawstyle": "steps-mid"}
        looks = {
            "certified": step | {"label": "certified, each target", "marker": "o", "color": "C0"},
            "collective": step | {"label": "certified, all targets together", "color": "#44aa99"},
            "attacked": {"label": "attacked", "marker": "v", "color": "#cc6677", "ls": ""},
        }
        for column in filter(curve.columns.__contains__, looks):
            known = curve[curve[column].notna()]
            ax.plot(known["budget"], 100 * known[column], **looks[column])
        if mlp is not None:
            ax.axhline(100 * mlp, color="#1b1b1b", ls="--", lw=1, label=f"MLP {100 * mlp:.1f} %")
        title = f"{self.model}, {self.scheme.name}"
        ax.set(ylim=(0, 100), xlabel=self._axis(), ylabel="accuracy in %", title=title)
        ax.set_xticks(curve["budget"])
        ax.legend()
        return ax

    def to_json(self) -> str:
        """Return the record as JSON: everything except the votes of each node."""
        record = {key: getattr(self, key) for key in RECORDED} | {
            "certificate": self.scheme.name,
            "unit": self.scheme.unit,
            "options": asdict(self.scheme),
            "edge_survival": self.scheme.survival(1),
            "curve": self.curve().to_dict(orient="records"),
            "grid": self.to_frame().to_dict(orient="records"),
            "num_targets": len(self.labels),
            "version": __version__,
        }
        if self._needs_isolation:
            record["locality"] = {"assumed": ISOLATION, **asdict(self.locality)}
        return json.dumps(record, indent=2, allow_nan=False)

    def save(self, path: str | Path) -> Path:
        """Write `certificate.json` into a folder, and return the folder.

        Raises:
            ConfigError: The file cannot be written.
        """
        write_whole(Path(path) / _REPORT, self.to_json() + "\n", option="certificate.save")
        return Path(path)

    @property
    def _needs_isolation(self) -> bool:
        return self.scheme.kind == "injection"

    def _right(self, certified: Bool[np.ndarray, " t"]) -> float:
        return accuracy(np.where(certified, self.bounds.predicted, -1), self.labels)


def nothing_fell(curve: Sequence[Mapping[Any, Any]]) -> bool:
    """Return whether attacks were run but had no effect at any budget."""
    accuracies = [point["attacked"] for point in curve if "attacked" in point]
    return bool(accuracies) and min(accuracies) == accuracies[0]


def read_certificates(folders: Iterable[str | Path]) -> dict[str, dict[str, Any]]:
    """Read reports by folder name, from folders with a report or folders of these.

    Folders with the same name are distinguished by their parents: `cora/gcn`, `citeseer/gcn`.
    """
    records: dict[Path, dict[str, Any]] = {}
    for folder in map(Path, folders):
        files = sorted([*folder.glob(_REPORT), *folder.glob(f"*/{_REPORT}")])
        if not files:
            raise DataError(f"{folder}: holds no {_REPORT}; write one by certify --save FOLDER")
        for file in files:
            try:
                record = from_json(
                    read_limited(file, LARGEST)
                )  # also raises an error if the nesting is too deep
            except (OSError, ValueError) as error:
                raise DataError(f"{file}: cannot be read ({error}); write it again") from error
            if problem := misfit(_Saved, record):
                raise DataError(
                    f"{file}: not a report of this version ({problem}); run certify again"
                )
            records[file.parent.absolute()] = record
    names = Counter(folder.name for folder in records)
    common = os.path.commonpath([folder.parent for folder in records]) if records else ""
    return {
        folder.name if names[folder.name] == 1 else folder.relative_to(common).as_posix(): record
        for folder, record in records.items()
    }


def certificate_tables(records: Mapping[str, Mapping[str, Any]]) -> dict[str, pd.DataFrame]:
    """Build a table per scheme, with a row per report: certified / attacked accuracies in %."""
    rows: dict[str, list[dict[str, str]]] = {}
    for name, record in records.items():
        row = {
            "model": name,
            "without noise": _percent(record["plain_accuracy"]),
            "smoothed": _percent(record["clean_accuracy"]),
            "abstained": _percent(record["abstained"]),
            "attacks": _attacks(record),
        }
        keys = ("certified", "collective", "attacked")
        for point in record["curve"]:
            shown = [_percent(point[key]) for key in keys if key in point]
            row[str(point["budget"])] = " / ".join(shown) + ("!" if point.get("broken") else "")
        shares = [key for key in keys if key != "collective" or key in record["curve"][0]]
        title = f"{record['certificate']}: {' / '.join(shares)} accuracy in % by {record['unit']}"
        rows.setdefault(title, []).append(row)
    tables = {}
    for title, table_rows in rows.items():
        frame = pd.DataFrame(table_rows).fillna("")
        budgets = sorted(filter(str.isdecimal, frame.columns), key=int)
        tables[title] = frame[[*(name for name in frame if name not in budgets), *budgets]]
    return tables


def _attacks(record: Mapping[str, Any]) -> str:
    """Describe the extent of the attacks, and whether they had an effect."""
    if "attacked" not in record["curve"][0]:
        return "none"
    how = "one target at a time" if record.get("local") else "all targets together"
    return f"{how}, no effect" if nothing_fell(record["curve"]) else how


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"

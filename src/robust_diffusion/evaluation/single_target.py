"""Attacks on one target at a time: the number of edges until the model misclassifies it."""

from typing import Any, Literal

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import degree

from robust_diffusion.attacks import Budget, Task, seeded
from robust_diffusion.attacks.base import Kind, finite_gradient
from robust_diffusion.attacks.feature_set import FeatureSet, feature_set
from robust_diffusion.attacks.losses import margins
from robust_diffusion.attacks.modification.base import flip
from robust_diffusion.checks import Count, Seed, SomeSteps, check_value, validated
from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.evaluate_model import budget_of, probed
from robust_diffusion.evaluation.threat import OpenThreat, threat_model
from robust_diffusion.models.modules import own_context
from robust_diffusion.models.victim import Victim
from robust_diffusion.system.progress import Progress

TRIED = 4
"""Number of flips with the highest gradients that are tried, since a gradient only approximates
their effect."""

STEPS, LENGTH = 10, 1 / 5
"""Sign steps of the features after each new node, and their length as a share of the range."""


@validated("")
@own_context()
def attack_each(
    model: nn.Module,
    data: Data | GraphDataModule,
    max_edges: SomeSteps = 5,
    *,
    kind: Kind = "modification",
    targets: Any = "test",
    threat: OpenThreat = "adaptive",
    feature_limits: tuple[float, float] | None = None,
    seed: Seed = 0,
    device: str | torch.device | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Attack targets one at a time, and count the edges until the model misclassifies each.

    The attack is greedy and white box, with the true classes. A modification flips pairs of the
    target and another node one by one. It tries the few pairs whose flip lowers the target's margin
    most by the gradient, and flips the one that does. An injection joins new nodes to
    the target one by one, each by a single edge, and moves all their features along the sign of the
    gradient. The count is an upper bound of the number of edges needed; a certificate's radius is a
    lower bound, but for the smoothed form of the model.

    Args:
        model: Trained model (see `evaluate`).
        data: The clean graph (see `evaluate`).
        max_edges: Most edges per target, at least 1.
        kind: `modification` | `injection`.
        targets: Nodes to attack (see `evaluate`).
        threat: Model that is attacked: its adaptive form (adaptive), or itself (white_box).
        feature_limits: Smallest and largest injected feature; `None` for the range of the graph.
        seed: Seed for a model that samples.
        device: Device to run on; `None` for the model's device.
        progress: Show a bar on a terminal, or log a line a minute.

    Returns:
        A frame indexed by `node`. Its columns are the class `label`; the `degree`; the `margin`,
        the logit of the class minus the best other logit on the clean graph; `edges`, 0 if the
        model errs without an attack and missing if `max_edges` did not suffice; and `max_edges`.

    Raises:
        RobustDiffusionError: Any error of `evaluate`, or the model has no gradient.

    Examples:
        >>> from robust_diffusion.evaluation import attack_each
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> model = GCN(8, 8, out_channels=7)
        >>> frame = attack_each(model, data, 2, targets=range(3), progress=False)
        >>> list(frame.columns)
        ['label', 'degree', 'margin', 'edges', 'max_edges']
    """
    victim, task, _ = probed(model, data, targets, device, seed=seed, grows=kind == "injection")
    budget = budget_of(Budget(max_edges, 1, feature_limits), task, {})
    with victim, seeded(seed):
        form = threat_model(threat).form(victim)
        one = _OneByOne(form, task.attacker_view(form, "labels"))
        if kind == "modification":
            form.check_edge_gradient()
        with torch.no_grad():
            clean = margins(form.clean_logits[one.task.targets], one.task.labels)
        edges = []
        flips, allowed = kind == "modification", feature_set(budget)
        with Progress(f"{kind} of each", len(clean), "targets", shown=progress) as tell:
            for i in range(len(clean)):
                count = one.flips(i, max_edges) if flips else one.injections(i, max_edges, allowed)
                edges.append(count)
                lost = sum(count is not None for count in edges)
                tell(1, note=f"{lost} lost")
    clean = clean.float() if clean.element_size() < 4 else clean  # NumPy has no bfloat16
    neighbours = degree(task.edge_index[0], len(task.x))[task.targets]
    columns = {
        "label": task.labels,
        "degree": neighbours.int(),
        "margin": -clean.cpu(),
        "edges": pd.array(edges, dtype="Int64"),
        "max_edges": max_edges,
    }
    return pd.DataFrame(columns, index=pd.Index(task.targets.numpy(), name="node"))


@validated("")
def right_by_edges(
    found: pd.DataFrame,
    by: Literal["degree", "margin"] | None = None,
    groups: Count = 4,
    max_edges: SomeSteps | None = None,
) -> pd.DataFrame:
    """Compute the share of targets still correctly classified after 0, 1, ... edges, in 0..1.

    Args:
        found: Result of `attack_each`.
        by: `degree` | `margin` to split the targets into `groups` equal groups by this value, with
            a column for each group and one for targets without a value; `None` for one column of
            all targets.
        groups: Number of groups, at least 1.
        max_edges: Last row; defaults to the `max_edges` of `attack_each`, which is also the
            largest. Required if the frame has no such column.

    Raises:
        ConfigError: `max_edges` exceeds the edges tried or is missing, or there are no targets.

    Examples:
        >>> import pandas as pd
        >>> from robust_diffusion.evaluation import right_by_edges
        >>> frame = pd.DataFrame({"edges": pd.array([0, 1, None, None], dtype="Int64")})
        >>> right_by_edges(frame, max_edges=2)["all"].tolist()
        [0.75, 0.5, 0.5]
    """
    if found.empty:
        raise ConfigError("found: expected targets, got an empty frame; select at least one")
    tried = int(found["max_edges"].min()) if "max_edges" in found else None
    most = check_value("max_edges", tried if max_edges is None else max_edges, SomeSteps)
    if tried is not None and most > tried:
        raise ConfigError(f"max_edges={most}: expected at most {tried}, which attack_each tried")
    fell = found["edges"].fillna(most + 1)
    group = found[by] if by else pd.Series("all", found.index)
    if len(group.dropna().unique()) > 1:  # qcut cannot split a single value
        group = pd.qcut(group, groups, duplicates="drop")
    right = {k: (fell > k).groupby(group, observed=True, dropna=False) for k in range(most + 1)}
    return pd.DataFrame({k: grouped.mean() for k, grouped in right.items()}).T.rename_axis("edges")


class _OneByOne:
    """Attacks on one target of a task at a time, identified by its position i."""

    def __init__(self, victim: Victim, task: Task) -> None:
        self.victim, self.task = victim, task

    def flips(self, i: int, most: int) -> int | None:
        """Count flips at the target until it is misclassified; `None` if `most` do not suffice."""
        x, edges = self.task.x, self.task.edge_index
        if self.margin(i, x, edges) > 0:
            return 0
        for count in range(1, most + 1 if len(x) > 1 else 1):  # a single node has no pair to flip
            best = self.gains(i, edges).topk(min(TRIED, x.size(0) - 1)).indices
            pairs = torch.stack([self.task.targets[i].expand_as(best), best])
            tried = [flip(edges, pair[:, None], x.size(0)) for pair in pairs.T]
            reached = [self.margin(i, x, graph) for graph in tried]
            edges = tried[max(range(len(tried)), key=reached.__getitem__)]
            if max(reached) > 0:
                return count
        return None

    def gains(self, i: int, edges: Int[Tensor, "2 e"]) -> Float[Tensor, " n"]:
        """Compute the slope of the target's margin along the flip of its pair with each node."""
        target, n = self.task.targets[i], self.task.x.size(0)
        mine = (edges == target).any(0)
        ends = torch.where(edges[0] == target, edges[1], edges[0])
        joined = torch.zeros(n, dtype=torch.bool, device=edges.device)
        joined[ends[mine]] = joined[target] = True
        others = (~joined).nonzero()[:, 0]
        new = torch.stack([target.expand_as(others), others])
        index = torch.cat([edges, new, new.flip(0)], 1)
        weight = self.task.x.new_zeros(index.size(1))
        weight[: edges.size(1)] = 1
        weight.requires_grad_()
        logits = self.victim(self.task.x, index, weight)[self.task.targets]
        margin = margins(logits, self.task.labels)[i]
        slope = finite_gradient(margin, weight, "edge weights")
        gains = slope.new_zeros(n)
        gains.index_add_(0, ends[mine], -slope[: edges.size(1)][mine])
        gains.index_add_(0, others.repeat(2), slope[edges.size(1) :])
        gains[target] = -torch.inf
        return gains

    def injections(self, i: int, most: int, allowed: FeatureSet) -> int | None:
        """Count new nodes at the target until it is misclassified; `None` if `most` is too few."""
        victim, task = self.victim, self.task
        target, n, edges = task.targets[i], task.x.size(0), task.edge_index
        features = task.x.new_empty(0, task.x.size(1))
        if self.margin(i, task.x, edges) > 0:
            return 0
        start = self.toward_the_nearest_class(i, allowed)
        for count in range(1, most + 1):
            new = torch.stack([target, target.new_tensor(n + count - 1)])[:, None]
            edges = torch.cat([edges, new, new.flip(0)], 1)
            features = torch.cat([features, start[None]])
            for _ in range(STEPS + 1):
                features.requires_grad_()
                logits = victim(victim.with_rows(allowed.exact(features)), edges)[task.targets]
                margin = margins(logits, task.labels)[i]
                if margin > 0:
                    return count
                slope = finite_gradient(margin, features, "features")
                step = LENGTH * (allowed.high - allowed.low) * slope.sign()
                features = allowed.clip(features.detach() + step)
        return None

    def toward_the_nearest_class(self, i: int, allowed: FeatureSet) -> Float[Tensor, " f"]:
        """Return features at the limits, along the mean difference of the two nearest classes."""
        logits, task = self.victim.clean_logits, self.task
        predicted = logits.argmax(1)
        top, other = logits[task.targets[i]].topk(2).indices
        mean = {c: task.x[predicted == c].mean(0).nan_to_num() for c in (int(top), int(other))}
        return allowed.extreme((mean[int(other)] - mean[int(top)])[None])[0]

    def margin(self, i: int, x: Float[Tensor, "m f"], edges: Int[Tensor, "2 e"]) -> float:
        """Compute the margin of the target, which is misclassified if it is above 0."""
        with torch.no_grad():
            return float(margins(self.victim(x, edges)[self.task.targets], self.task.labels)[i])

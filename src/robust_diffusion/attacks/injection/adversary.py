"""Adversarial training on nodes that are injected on the fly."""

from functools import partial
from typing import get_args

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks.base import Task, Victim, clean_graph
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.feature_set import feature_set
from robust_diffusion.attacks.gradient_ascent import Ascent, StepRule
from robust_diffusion.attacks.injection.base import STARTS, StartName, connect
from robust_diffusion.attacks.injection.edge_allocation import SHARINGS, SharingName
from robust_diffusion.attacks.losses import LOSSES, LossName
from robust_diffusion.checks import (
    Count,
    Positive,
    PositiveShare,
    SomeSteps,
    check_choice,
    validated,
)
from robust_diffusion.errors import AttackError, TrainingError
from robust_diffusion.models.victim import sorted_by

_KEY = "adversary"


@validated("adversary")
class InjectionAdversary:
    """Adversarial training on injected nodes whose features move by gradient in every epoch.

    Edges and initial features of the injected nodes are drawn and last for `epochs_per_draw`
    epochs. In each of these, Adam continues from its last state and takes a few steps against the
    current model, so that a few steps per epoch do the work of many. Then everything is redrawn.

    The steps differentiate the model in eval mode. Attacked passes do not use the degrees of the
    whole graph that `fidelity.degree_leak` passes to training.

    Reference: adversarial training, Madry et al. 2018, arXiv:1706.06083, with steps that go on
    from epoch to epoch, Shafahi et al. 2019, arXiv:1904.12843.

    Args:
        node_ratio: Injected nodes per training node, above 0; at least one is injected.
        edges_per_target: Edges injected at each training node on average, at least 1.
        num_steps: Gradient steps per epoch, at least 1.
        epochs_per_draw: Epochs after which edges and features are redrawn, at least 1;
            with clusters, every batch gets its own draw.
        attacked_share: Weight of the attacked loss in the training loss, in (0, 1].
        loss: Loss that the steps raise; see `attacks.losses`.
        edges: How the new nodes distribute their edges; see `GradientInjection`.
        start: Features that the steps start from; see `GradientInjection`.
        step_size: Adam's learning rate, above 0; see `Budget.scale_steps`.
        feature_limits: Smallest and largest injected feature; `None` for the range of the view.

    Examples:
        >>> from robust_diffusion import fit
        >>> from robust_diffusion.attacks import InjectionAdversary
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> result = fit(
        ...     GCN(8, 8, out_channels=7),
        ...     data,
        ...     max_epochs=2,
        ...     accelerator="cpu",
        ...     progress=False,
        ...     adversary=InjectionAdversary(num_steps=1),
        ... )
        >>> result.epochs
        2
    """

    def __init__(
        self,
        *,
        node_ratio: Positive = 0.2,
        edges_per_target: Count = 1,
        num_steps: SomeSteps = 2,
        epochs_per_draw: Count = 20,
        attacked_share: PositiveShare = 0.5,
        loss: LossName = "tanh_margin",
        edges: SharingName = "classes",
        start: StartName = "real",
        step_size: Positive = 0.1,
        feature_limits: tuple[float, float] | None = None,
    ) -> None:
        check_choice(f"{_KEY}.edges", edges, set(get_args(SharingName)) - {"gradient"})
        self.node_ratio = node_ratio
        self.edges_per_target = edges_per_target
        self.num_steps = num_steps
        self.epochs_per_draw = epochs_per_draw
        self.attacked_share = attacked_share
        self.edges, self.start = edges, start
        self.steps = StepRule(loss=loss, step_size=step_size)
        self.feature_limits = feature_limits
        self.budget(1, (0.0, 1.0))

    def against(self, model: nn.Module) -> "InjectionAttacker":
        """Create an attacker of a model."""
        return InjectionAttacker(self, model)

    def budget(self, num_targets: int, feature_range: tuple[float, float]) -> Budget:
        """Return the limits on a view with this number of scored nodes and range of features."""
        return Budget(
            max(1, round(self.node_ratio * num_targets)),
            num_targets,
            feature_limits=self.feature_limits or feature_range,
            max_injected_edges=self.edges_per_target * num_targets,
        )


class InjectionAttacker:
    """State of an `InjectionAdversary`: the nodes injected into the train view of a model."""

    def __init__(self, options: InjectionAdversary, model: nn.Module) -> None:
        self._options = options
        self._model = model
        self._generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
        self._clean: Data | None = None
        self._epochs = 0  # since the last draw
        self._edges: Tensor
        self._ascent: Ascent
        self._victim: Victim  # of the weights of this epoch

    def __call__(self, data: Data) -> Data:
        """Return the attacked view; the scored nodes are those of `data`."""
        again = self._epochs == self._options.epochs_per_draw
        with Victim(self._model, *clean_graph(data)) as victim:
            try:
                if again or not self._knows(data):
                    self._draw(data, victim)
                self._epochs += 1
                self._victim = victim
                new = self._ascent.advance(self._options.num_steps)
            except AttackError as error:
                raise TrainingError(
                    f"{_KEY}: no injected node can be moved against {type(self._model).__name__}, "
                    "which gives no finite gradient in its features; use adversary=none"
                ) from error
        return _with_nodes(data, new.clone(), self._edges)

    def _knows(self, data: Data) -> bool:
        """Return whether this is the view of the last call, or a copy of it."""
        if self._clean is None:
            return False
        known, edges = clean_graph(self._clean)[1], clean_graph(data)[1]
        return known is edges or torch.equal(known, edges)

    def _draw(self, data: Data, victim: Victim) -> None:
        x, edge_index = clean_graph(data)
        options, generator = self._options, self._generator
        task = scored_task(victim, data)
        budget = options.budget(task.targets.numel(), (x.min().item(), x.max().item()))
        allowed = feature_set(budget)
        rows = SHARINGS[options.edges](
            victim, task, (x, edge_index), budget.injected_degrees, generator
        )
        (self._edges,) = sorted_by(victim.traits.row, connect(edge_index, rows, x.size(0)))
        self._ascent = Ascent(
            allowed.clip(STARTS[options.start](victim, task, rows, budget, generator)),
            lambda new: self._loss(task, new),
            partial(options.steps.of, unit=allowed.unit),
            allowed.clip,
        )
        self._clean, self._epochs = data, 0

    def _loss(self, task: Task, new: Tensor) -> Tensor:
        logits = self._victim(self._victim.with_rows(new), self._edges)[task.targets]
        return LOSSES[self._options.steps.loss](logits, task.labels).mean()


def scored_task(victim: Victim, data: Data) -> Task:
    """Return the task of an adversary: the scored nodes of a train view, with their classes."""
    y, predicted = data["y"], victim.clean_logits.argmax(1)
    return Task(data, data["mask"].nonzero().squeeze(1), torch.where(y >= 0, y, predicted))


def _with_nodes(data: Data, new: Tensor, edge_index: Tensor) -> Data:
    """Return the attacked view; the new nodes are not scored."""
    x, y, mask = clean_graph(data)[0], data.y, data.mask
    assert isinstance(y, Tensor)
    none = new.size(0)
    return Data(
        x=torch.cat([x, new]),
        edge_index=edge_index,
        y=torch.cat([y, y.new_zeros(none)]),
        mask=torch.cat([mask, mask.new_zeros(none)]),
    )

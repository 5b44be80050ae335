"""Adversarial training on edges that are flipped on the fly."""

import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from robust_diffusion.attacks.base import Victim, clean_graph
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.injection.adversary import scored_task
from robust_diffusion.attacks.modification.prbcd import LRBCD
from robust_diffusion.checks import Count, PositiveShare, SomeSteps, validated
from robust_diffusion.errors import AttackError, ConfigError, TrainingError
from robust_diffusion.models.victim import sorted_by

_KEY = "adversary"


@validated("adversary")
class FlipAdversary:
    """Adversarial training on edge flips that LRBCD finds against the current model.

    LRBCD flips edges at the nodes of the train view, with the model in eval mode. The flips last
    for `epochs_per_draw` epochs and are then searched again. Attacked passes do not use the degrees
    of the whole graph that `fidelity.degree_leak` passes to training.

    Reference: Gosch et al. 2023, arXiv:2306.15427, which searches in every epoch.

    Args:
        edge_ratio: Flips as a share of the edges at the scored nodes, in (0, 1].
        local_ratio: Most flips at a node as a share of its edges, in (0, 1], rounded down.
        num_steps: Steps of LRBCD per search, at least 1.
        block_size: Pairs that LRBCD draws at a time, at least 1.
        epochs_per_draw: Epochs after which flips are searched again, at least 1;
            with clusters, every batch is searched again.
        attacked_share: Weight of the attacked loss in the training loss, in (0, 1].

    Examples:
        >>> from robust_diffusion import fit
        >>> from robust_diffusion.attacks import FlipAdversary
        >>> from robust_diffusion.models import GCN
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> result = fit(
        ...     GCN(8, 8, out_channels=7),
        ...     data,
        ...     max_epochs=2,
        ...     accelerator="cpu",
        ...     progress=False,
        ...     adversary=FlipAdversary(num_steps=1),
        ... )
        >>> result.epochs
        2
    """

    def __init__(
        self,
        *,
        edge_ratio: PositiveShare = 0.2,
        local_ratio: PositiveShare = 0.5,
        num_steps: SomeSteps = 20,
        block_size: Count = 10_000,
        epochs_per_draw: Count = 5,
        attacked_share: PositiveShare = 1.0,
    ) -> None:
        self.search = LRBCD(num_steps=num_steps, block_size=block_size, local_ratio=local_ratio)
        self.budget = Budget(edge_ratio=edge_ratio)
        self.epochs_per_draw = epochs_per_draw
        self.attacked_share = attacked_share

    def against(self, model: nn.Module) -> "FlipAttacker":
        """Create an attacker of a model."""
        return FlipAttacker(self, model)


class FlipAttacker:
    """State of a `FlipAdversary`: the flipped edges of the train view of a model."""

    def __init__(self, options: FlipAdversary, model: nn.Module) -> None:
        self._options, self._model = options, model
        self._generator = torch.Generator().manual_seed(int(torch.randint(2**31, ())))
        self._clean: Tensor | None = None
        self._flipped: Tensor
        self._epochs = 0  # since the last search

    def __call__(self, data: Data) -> Data:
        """Return the attacked view; the scored nodes are those of `data`."""
        x, edge_index = clean_graph(data)
        known = self._clean is edge_index or (
            self._clean is not None and torch.equal(self._clean, edge_index)
        )
        if not known or self._epochs == self._options.epochs_per_draw:
            self._flipped = self._search(data)
            if self._clean is None and torch.equal(self._flipped, edge_index):
                options = self._options
                raise ConfigError(
                    f"{_KEY}.edge_ratio={options.budget.edge_ratio:g}, {_KEY}.local_ratio="
                    f"{options.search.local_ratio:g}: expected a flip at least, got none at the "
                    f"training nodes; raise them, or use {_KEY}=none"
                )
            self._clean, self._epochs = edge_index, 0
        self._epochs += 1
        return Data(x=x, edge_index=self._flipped, y=data.y, mask=data.mask)

    def _search(self, data: Data) -> Tensor:
        """Return the edges of the view after flips that raise the loss of its scored nodes."""
        options = self._options
        with Victim(self._model, *clean_graph(data)) as victim:
            try:
                task, rng = scored_task(victim, data), self._generator
                _, flipped = options.search.modify(victim, task, options.budget, rng)
                return sorted_by(victim.traits.row, flipped)[0].clone()  # type: ignore[no-any-return]
            except ConfigError as error:
                key = f"attacks.{options.search.name}."
                raise ConfigError(str(error).replace(key, f"{_KEY}.")) from error
            except AttackError as error:
                raise TrainingError(
                    f"{_KEY}: no edge can be flipped against {type(self._model).__name__} "
                    f"({error}); use adversary=injection or none"
                ) from error

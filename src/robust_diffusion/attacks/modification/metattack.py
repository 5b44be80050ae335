"""Metattack: flips by the gradient of a loss through the training of a surrogate."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch_geometric.utils import is_undirected

from robust_diffusion.attacks.base import FeaturesAndEdges, Need, Task, Victim, check_finite
from robust_diffusion.attacks.budget import Budget
from robust_diffusion.attacks.modification.base import (
    ModificationAttack,
    flip,
    glorot,
    max_flips,
    membership,
    trained_on,
)
from robust_diffusion.checks import Positive, Share, SomeSteps, validated
from robust_diffusion.errors import AttackError

LossOf = Literal["self", "train"]


@validated("attacks.{self.name}")
class Metattack(ModificationAttack):
    """Metattack: flips of highest meta-gradient, one at a time, to poison a model's training.

    The surrogate is linear, Z = Â Â X W with Â = D^-1/2 (A + I) D^-1/2. It is trained by gradient
    descent with momentum on the cross-entropy of the train nodes. The meta-gradient is the gradient
    of the attack's loss with respect to A, through all steps of that training. Each flip is the
    pair that raises the loss most to first order. No flip adds a self-loop, removes the last edge
    of a node, or is undone later. The features stay as they are.

    The train nodes are `data.index_train`, which `threat=poisoning` sets, or all nodes except the
    targets if it is missing. The classes are those of `task.labels`.

    Reference: Zügner and Günnemann 2019, arXiv:1902.08412.

    Args:
        loss: Nodes at which the loss is raised: `self` for the nodes that are not trained on, with
            their predicted classes (Meta-Self); `train` for the train nodes (Meta-Train).
        num_epochs: Steps of the surrogate's training, at least 1.
        learning_rate: Learning rate of that training, above 0.
        momentum: Momentum of that training, in 0..1.

    Deviation: The authors' surrogate has two factors W1 W2. They also test that the degrees still
    follow their power law, which is omitted here. The attack needs memory for a few n x n matrices.

    Examples:
        >>> from robust_diffusion.attacks import Metattack
        >>> Metattack(num_epochs=5).kind
        'modification'
    """

    name = "metattack"
    needs: ClassVar[frozenset[Need]] = frozenset({"predictions"})
    changes_features: ClassVar[bool] = False

    def __init__(
        self,
        *,
        loss: LossOf = "self",
        num_epochs: SomeSteps = 100,
        learning_rate: Positive = 0.1,
        momentum: Share = 0.9,
    ) -> None:
        self.loss = loss
        self.num_epochs = num_epochs
        self.learning_rate = learning_rate
        self.momentum = momentum

    @classmethod
    def unread(cls, options: Mapping[str, Any]) -> frozenset[str]:
        """See `Attack`; scales the features of its surrogate."""
        return super().unread(options) - {"budget.scale_steps"}

    def modify(
        self, victim: Victim, task: Task, budget: Budget, generator: Generator
    ) -> FeaturesAndEdges:
        """Flip the pair of the highest meta-gradient, again and again."""
        x, edges, targets, n = task.x, task.edge_index, task.targets, len(task.x)
        if not is_undirected(edges, num_nodes=n):
            raise AttackError(
                "the graph is directed; use torch_geometric.utils.to_undirected(data.edge_index)"
            )
        labels = task.all_labels
        train = trained_on(task)
        of_graph = replace(
            budget, features=None, max_words=None, feature_limits=(x.min().item(), x.max().item())
        )
        surrogate_x = (x - of_graph.centre) / of_graph.unit  # the unit would affect its training
        free = membership(targets, n)
        free = (free[:, None] | free).triu(1)  # pairs that may still be flipped
        for _ in range(max_flips(task, budget)):
            weight = glorot((x.size(1), int(labels.max()) + 1), generator).to(x)
            gain = self.meta_gradient(surrogate_x, edges, labels, train, weight)
            check_finite(gain.isfinite().all(), "edge weights")
            there = edges[:, edges[0] < edges[1]]
            gain[there[0], there[1]] *= -1
            gain.masked_fill_(~free, -torch.inf)
            alone = torch.bincount(edges[0], minlength=n)[there].amin(0) < 2
            gain[there[0, alone], there[1, alone]] = -torch.inf
            u, v = divmod(int(gain.argmax()), n)
            if not gain[u, v] > 0:
                break
            free[u, v] = False
            edges = flip(edges, torch.tensor([[u], [v]], device=edges.device), n)
        return x, edges

    def meta_gradient(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        labels: Int[Tensor, " n"],
        train: Bool[Tensor, " n"],
        weight: Float[Tensor, "f c"],
    ) -> Float[Tensor, "n n"]:
        """Compute the gradient of the attack's loss, after training, summed over both directions.

        Args:
            x: Features.
            edge_index: Edges, both directions.
            labels: Classes that the surrogate is trained on and then driven away from.
            train: Mask of the train nodes.
            weight: W before the training.
        """
        n, nodes = len(x), torch.arange(len(x), device=x.device)
        src, dst = loops = torch.cat([edge_index, nodes.expand(2, n)], 1)
        degree = torch.bincount(src, minlength=n).to(x.dtype)
        values = (degree[src] * degree[dst]).rsqrt()
        a = torch.sparse_coo_tensor(loops, values, (n, n), check_invariants=False).coalesce()
        ax, rows = a @ x, train.nonzero().squeeze(1)
        smooth = (a @ ax)[rows].requires_grad_()
        with torch.enable_grad():
            weight = self.trained(smooth, F.one_hot(labels[rows], weight.size(1)).to(x), weight)
        hidden = x @ weight.detach()
        once = a @ hidden
        scored = train if self.loss == "train" else ~train
        # dL/dZ of the mean cross-entropy, and from there to the weights and the smoothed features.
        residual = (a @ once).softmax(1) - F.one_hot(labels, weight.size(1)).to(x)
        at_z = residual * scored[:, None] / scored.sum()
        a_at_z = a @ at_z
        (at_smooth,) = torch.autograd.grad(weight, smooth, x.T @ (a @ a_at_z))
        # dL/dÂ through Z = Â Â H, and through the trained rows of Â Â X with Q = dL/d(Â Â X) X^T.
        slope = torch.cat([at_z, a_at_z], 1) @ torch.cat([once, hidden], 1).T
        q = at_smooth @ x.T
        slope[rows] += (a @ q.T).T
        place = torch.full((n,), -1, device=x.device)
        place[rows] = torch.arange(len(rows), device=x.device)
        known = train[dst]
        slope.index_add_(0, src[known], values[known, None] * q[place[dst[known]]])
        # dL/dA: Â depends on A also through the degrees.
        by_edge = slope[src, dst] * values
        by_degree = torch.zeros_like(degree).index_add_(0, src, by_edge).index_add_(0, dst, by_edge)
        by_degree /= -2 * degree
        scale = degree.rsqrt()
        slope *= scale[:, None] * scale
        slope += by_degree[:, None]
        return slope + slope.T

    def trained(
        self, smooth: Float[Tensor, "t f"], classes: Float[Tensor, "t c"], weight: Tensor
    ) -> Float[Tensor, "f c"]:
        """Return W after training on smoothed features, differentiable in these.

        Each step adds a combination of the rows of S = `smooth` to W. So W = W0 - S^T C, and it is
        enough to train C with the t x t matrix S S^T.
        """
        start, kernel = smooth @ weight, smooth @ smooth.T
        moved, step = torch.zeros_like(classes), torch.zeros_like(classes)
        for _ in range(self.num_epochs):
            residual = (start - kernel @ moved).softmax(1) - classes
            step = self.momentum * step + residual / len(classes)
            moved = moved + self.learning_rate * step
        return weight - smooth.T @ moved

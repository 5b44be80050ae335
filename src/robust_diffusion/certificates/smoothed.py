"""A smoothed classifier as a module to attack, and a classifier that is trained on its noise."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.certificates.base import Smoothing
from robust_diffusion.certificates.noise import Noise
from robust_diffusion.certificates.sampling import noisy_logits
from robust_diffusion.models.adaptive import DRAWS


class SmoothedModel(nn.Module):
    """The class that most of some fixed draws are given, with a gradient that leads there.

    Logits are log((votes_c + 1) / (draws + C)); their gradient is that of the log of the mean class
    probabilities, since votes have none. As the draws are fixed, this is the expectation over draws
    by which a defence that samples is attacked (arXiv:1802.00420).

    Args:
        model: The classifier, in eval mode, of (x, edge_index[, edge_weight]).
        scheme: Draws the noisy graphs.
        draws: Their number, at least 1.
        seed: Of the draws.
        per_pass: Graphs of one pass, of nodes with edges alone; 1 for whole graphs, one at a time.
            See `sampling.graphs_per_pass`.

    Examples:
        >>> import torch
        >>> from robust_diffusion import GCN, SmoothedModel, SparseSmoothing
        >>> model = SmoothedModel(GCN(5, 4, 3).eval(), SparseSmoothing(), draws=8)
        >>> model(torch.rand(3, 5), torch.tensor([[0, 1], [1, 0]])).shape
        torch.Size([3, 3])
    """

    normalizes_by_degree = False

    def __init__(
        self,
        model: nn.Module,
        scheme: Smoothing,
        *,
        draws: int = DRAWS,
        seed: int = 0,
        per_pass: int = 1,
    ) -> None:
        super().__init__()
        self.model = model
        self.scheme = scheme
        self.draws = draws
        self.per_pass = per_pass
        self.noise = Noise(seed, "model")

    def forward(
        self,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
        edge_weight: Float[Tensor, " e"] | None = None,
    ) -> Float[Tensor, "n c"]:
        """Logits of every node."""
        parts = []
        edgeless = self.model(x, edge_index[:, :0]) if self.per_pass > 1 else None
        for first in range(0, self.draws, self.per_pass):
            some = range(first, min(first + self.per_pass, self.draws))
            args = (self.model, x, edge_index, self.scheme, self.noise, some, edge_weight)
            parts.append(noisy_logits(*args, edgeless=edgeless))
        logits = torch.cat(parts)
        classes = logits.size(2)
        soft = torch.logsumexp(logits.log_softmax(2), 0) - math.log(self.draws)
        votes = nn.functional.one_hot(logits.detach().argmax(2), classes).sum(0)
        hard = ((votes + 1).to(logits.dtype) / (self.draws + classes)).log()
        return soft + (hard - soft).detach()


class NoisyModel(nn.Module):
    """A classifier that sees one noisy graph in each pass, to be trained on it.

    In training every pass has a noise of its own, by PyTorch's global generator; in evaluation all
    have the same, so that validation compares epochs by one graph.

    Reference: arXiv:2008.12952, whose models are trained on the noise of their certificate.
    """

    normalizes_by_degree = False

    def __init__(self, model: nn.Module, scheme: Smoothing, *, seed: int = 0) -> None:
        super().__init__()
        self.model = model
        self.scheme = scheme
        self.noise = Noise(seed, "training")

    def forward(
        self, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]
    ) -> Float[Tensor, "n c"]:
        """Logits of every node on one noisy graph."""
        draw = int(torch.randint(1, 2**31, ())) if self.training else 0
        return noisy_logits(self.model, x, edge_index, self.scheme, self.noise, [draw])[0]

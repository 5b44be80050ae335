"""Classifiers on noisy graphs: cached counts of votes, and modules that smooth or add noise."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.certificates.base import Noise, Purpose, Smoothing
from robust_diffusion.certificates.locality import Locality, no_numbers
from robust_diffusion.models.modules import seeded
from robust_diffusion.models.victim import DRAWS
from robust_diffusion.records.content import by_content, computed_by, object_key
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.system.artifact import Artifact
from robust_diffusion.system.hashes import file_hash
from robust_diffusion.system.progress import Progress
from robust_diffusion.system.tensor_hashes import tensor_hash

log = logging.getLogger(__name__)

PART = 100
"""Draws per cache entry, and thus the most that a killed run loses."""

NUMBERS_PER_PASS = {"cpu": 2**20, "cuda": 2**24}
"""Most features of nodes with edges, or edges of all copies, in one pass, to fit a memory cache."""

NO_NOISE = frozenset(
    [
        *("samples", "selection_samples", "alpha", "budgets"),
        *("max_additions", "max_deletions", "max_nodes", "edges"),
    ]
)
"""Options of a scheme that do not affect draws; all others may, including custom ones."""

OWN_CODE = sorted(Path(__file__).parent.glob("*.py"))
"""Files that votes may depend on."""


def noisy_logits(
    model: Callable[..., Tensor],
    x: Float[Tensor, "n f"],
    edge_index: Int[Tensor, "2 e"],
    scheme: Smoothing,
    noise: Noise,
    draws: Sequence[int],
    edge_weight: Float[Tensor, " e"] | None = None,
    edgeless: Float[Tensor, "n c"] | None = None,
) -> Float[Tensor, "b n c"]:
    """Compute logits on several noisy graphs in one pass.

    If `edgeless`, the logits of the graph without edges, is passed, they are used for nodes that
    lose all edges to the noise, and the pass only covers the others: one in a hundred under
    bi-smoothing.
    """
    n, b = x.size(0), len(draws)
    edges, weights = scheme.sample(edge_index, n, noise, draws, edge_weight)
    args = () if weights is None else (weights,)
    if edgeless is None:
        return model(x.repeat(b, 1) if b > 1 else x, edges, *args).view(b, n, -1)
    joined, ends = torch.unique(edges, return_inverse=True)
    logits = edgeless.repeat(b, 1)
    if len(joined):
        joined_logits = model(x[joined % n], ends, *args)
        logits = logits.index_put((joined,), joined_logits.to(logits.dtype))
    return logits.view(b, n, -1)


def graphs_per_pass(
    x: Float[Tensor, "n f"],
    edge_index: Int[Tensor, "2 e"],
    scheme: Smoothing,
    locality: Locality,
) -> int:
    """Return how many noisy graphs, restricted to nodes with edges, fit into one pass.

    The result is 1 for a model that depends on all edges or nodes at once, or that samples.
    """
    if not locality.separate:
        log.info("one noisy graph at a time, since nodes have an influence on all others")
        return 1
    edges, _ = scheme.sample(edge_index, x.size(0), Noise(0, "training"), [0])
    numbers = max(len(torch.unique(edges)) * x.size(1), edge_index.size(1))
    room = NUMBERS_PER_PASS.get(x.device.type, NUMBERS_PER_PASS["cuda"])
    return min(PART, max(1, room // max(1, numbers)))


@dataclass(frozen=True, eq=False)
class VoteCounter:
    """Counter of the classes that a model predicts on noisy graphs."""

    model: nn.Module  # in eval mode
    scheme: Smoothing  # draws the noisy graphs
    targets: Int[Tensor, " t"]  # nodes whose classes are counted
    seed: int  # of all draws
    store: ArtifactStore | None  # cache of the counts, by hundreds of draws; `None` for no cache
    key: Mapping[str, Any]  # anything else that distinguishes the model from others
    # Graphs per pass, restricted to nodes with edges; 1 for whole graphs, one at a time. See
    # `graphs_per_pass`.
    per_pass: int = 1
    progress: bool = False  # show a bar on a terminal, or log a line a minute

    def __call__(
        self,
        purpose: Purpose,
        samples: int,
        x: Float[Tensor, "n f"],
        edge_index: Int[Tensor, "2 e"],
    ) -> Int[Tensor, "t c"]:
        """Count votes by class over draws 0..samples - 1 of a graph, reusing cached counts."""
        total: Tensor | int = 0
        edgeless = cache(lambda: self.model(x, edge_index[:, :0]) if self.per_pass > 1 else None)
        with Progress(f"votes ({purpose})", samples, "draws", shown=self.progress) as tell:
            for start in range(0, samples, PART):
                draws = range(start, min(start + PART, samples))
                count = partial(self._count, purpose, draws, (x, edge_index), edgeless, tell)
                if self.store is None:
                    votes, reused = count(), False
                else:
                    key = self._key(purpose, draws, x, edge_index)
                    votes, reused = self.store.get_or_compute("votes", key, count)
                total = total + votes.tensors["votes"]
                if reused:
                    tell(len(draws), free=len(draws))
        assert isinstance(total, Tensor)
        return total

    def _key(self, purpose: Purpose, draws: range, x: Tensor, edge_index: Tensor) -> dict[str, Any]:
        names = {field.name for field in fields(self.scheme)} - NO_NOISE
        options = {name: object_key(getattr(self.scheme, name)) for name in sorted(names)}
        return {
            "graph": tensor_hash(x, edge_index, self.targets),
            "purpose": purpose,
            "draws": [draws.start, draws.stop],
            "seed": self.seed,
            "certificates": [file_hash(path)[:8] for path in OWN_CODE],
            **computed_by(),
            **by_content({**self.key, "noise": object_key(type(self.scheme)), "options": options}),
        }

    def _count(
        self,
        purpose: Purpose,
        draws: range,
        graph: tuple[Tensor, Tensor],
        edgeless: Callable[[], Tensor | None],
        tell: Progress,
    ) -> Artifact:
        parts, args = [], (self.model, *graph, self.scheme, Noise(self.seed, purpose))
        for some in batched(draws, self.per_pass):
            with torch.no_grad(), seeded(self.seed + some[0]):  # a model may sample
                logits = noisy_logits(*args, some, edgeless=edgeless())[:, self.targets]
            if logits.isnan().any():
                raise no_numbers(self.model, self.scheme)
            parts.append(logits.argmax(2).cpu())
            tell(len(some))
        predicted, classes = torch.cat(parts), range(logits.size(2))
        return Artifact({"votes": torch.stack([(predicted == c).sum(0) for c in classes], 1)})


def batched(draws: range, size: int) -> list[range]:
    """Split draws into runs of `size`; the last may have fewer."""
    return [draws[i : i + size] for i in range(0, len(draws), size)]


class SmoothedModel(nn.Module):
    """Majority class over a fixed set of draws, with a gradient.

    Logits are log((votes_c + 1) / (draws + C)). Votes have no gradient, so that of the log of the
    mean class probabilities is used instead. With fixed draws, this is the expectation over draws
    through which a defence that samples is attacked (arXiv:1802.00420).

    Args:
        model: Classifier of (x, edge_index[, edge_weight]), in eval mode.
        scheme: Scheme that draws the noisy graphs.
        draws: Number of draws, at least 1.
        seed: Seed of the draws.
        per_pass: Graphs per pass, restricted to nodes with edges; 1 for whole graphs, one at a
            time. See `graphs_per_pass`.

    Examples:
        >>> import torch
        >>> from robust_diffusion.certificates import SmoothedModel, SparseSmoothing
        >>> from robust_diffusion.models import GCN
        >>> model = SmoothedModel(GCN(5, 4, out_channels=3).eval(), SparseSmoothing(), draws=8)
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
        """Compute the logits of every node."""
        edgeless = self.model(x, edge_index[:, :0]) if self.per_pass > 1 else None
        args = (self.model, x, edge_index, self.scheme, self.noise)
        passes = batched(range(self.draws), self.per_pass)
        logits = torch.cat([noisy_logits(*args, some, edge_weight, edgeless) for some in passes])
        classes = logits.size(2)
        soft = torch.logsumexp(logits.log_softmax(2), 0) - math.log(self.draws)
        votes = nn.functional.one_hot(logits.detach().argmax(2), classes).sum(0)
        hard = ((votes + 1).to(logits.dtype) / (self.draws + classes)).log()
        return soft + (hard - soft).detach()


class NoisyModel(nn.Module):
    """A classifier that is trained on noisy graphs, one per pass.

    In training, every pass draws new noise from PyTorch's global generator. In evaluation, the
    noise is fixed, so that validation compares epochs on the same graph.

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
        """Compute the logits of every node on one noisy graph."""
        draw = int(torch.randint(1, 2**31, ())) if self.training else 0
        return noisy_logits(self.model, x, edge_index, self.scheme, self.noise, [draw])[0]

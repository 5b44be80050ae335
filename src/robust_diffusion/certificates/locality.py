"""Check that nodes have no influence on others that no path joins them to."""

import copy
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.attacks.randomness import seeded
from robust_diffusion.certificates.base import Smoothing
from robust_diffusion.certificates.noise import Noise
from robust_diffusion.errors import ConfigError

PROBE_FEATURES = 2**20
"""Most features of all probes of a pass: 8 MiB in double precision, beside the graph's."""

DECADES = 4
"""Decades above the graph's largest feature that probes reach."""

ISOLATION = "a node without edges has no influence on other nodes"
"""Assumption of certificates against injection about the model."""


@dataclass(frozen=True)
class Locality:
    """Influence of probe nodes on the nodes of a noisy graph, which no path joins them to.

    Args:
        isolated: Probes without edges have no influence.
        separate: Nor have probes that are joined with each other, so that several graphs can be
            run in one pass; false of a model that samples.
        probes: Number of probes without edges.
        dtype: float64, or the model's dtype if it does not run in double precision.
        gradient: Largest derivative of a node's logit by a feature of such a probe; `None` of a
            model without derivatives.
        change: Largest change of a logit by such probes, per unit of the largest logit; `None` of a
            model that samples.
    """

    isolated: bool
    separate: bool
    probes: int
    dtype: str
    gradient: float | None
    change: float | None

    def __str__(self) -> str:
        """What the check found."""
        shown = [
            ("largest gradient", self.gradient),
            ("largest change, per unit of the largest logit,", self.change),
        ]
        values = "; ".join(f"{name} {value:.2g}" for name, value in shown if value is not None)
        return f"{self.probes} isolated nodes added, {self.dtype}: {values}"


def check_locality(
    model: nn.Module, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"], scheme: Smoothing
) -> Locality:
    """Measure the influence of probe nodes on a noisy graph.

    Raises:
        ConfigError: The scheme certifies against injection, and an isolated node has an influence.
    """
    edges, _ = scheme.sample(edge_index, x.size(0), Noise(0, "training"), [0])
    locality = measure_locality(model, x, edges)
    if scheme.kind == "injection" and not locality.isolated:
        raise ConfigError(
            f"certificate={scheme.name}: expected a model in which {ISOLATION}, got "
            f"{type(model).__name__} ({locality}); use a model without statistics over all nodes "
            "and a solver of fixed steps, or certificate=sparse"
        )
    return locality


def measure_locality(
    model: nn.Module, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]
) -> Locality:
    """Add probe nodes to a graph and compare the logits of the other nodes.

    A derivative that is not exactly 0 shows an influence of any size, such as that of a mean over
    many nodes. A change shows an influence without a derivative, such as that of a maximum or of
    the number of nodes. Neither shows a dependence on features that no probe comes near.

    Probes are about as many as nodes. The first have features within or near the graph's limits
    and ids all over the graph. The others are up to 1e4 times as large, partly along the gradient
    of the probes' logits (where the other nodes' logits have a gradient, the check has failed
    already), and have the last ids, as injected nodes do.

    Args:
        model: In eval mode.
        x: Features.
        edge_index: Edges, both directions.
    """
    samples = any(getattr(module, "samples", False) for module in model.modules())
    generator = torch.Generator().manual_seed(0)
    with seeded(0):
        graph = _in_double(model, x, edge_index)
        near = _probes(graph.x, generator)
        spread = _spread(len(x), len(near), generator).to(x.device)
        spokes = torch.arange(1, len(near), device=x.device)
        wheel = torch.cat([torch.stack([spokes, end]) for end in (0 * spokes, spokes.roll(1))], 1)
        gradient, change, ascent = graph.influence(near, wheel[:, :0], spread)
        far = torch.cat([near, ascent * graph.x.abs().max()])
        far = far * 10 ** (DECADES * torch.rand(len(far), 1, generator=generator).to(far))
        with torch.no_grad():
            last = torch.arange(len(x) + len(far), device=x.device)
            change = torch.maximum(change, graph.change(graph.beside(far, wheel[:, :0], last)))
            edgeless = torch.ones(len(x), dtype=torch.bool, device=x.device)
            edgeless[edge_index] = False
            alone = graph.change(graph.model(graph.x, edge_index[:, :0]), edgeless)
        joined = graph.influence(near, torch.cat([wheel, wheel.flip(0)], 1), spread)
    # Rounding costs a model half of its digits at most. In double precision that is 1.5e-8 of the
    # largest logit, less than votes, counted in single precision, tell apart. Sums in another order
    # change the logits of the package's models by less than 1e-14 there.
    tolerance = torch.finfo(graph.logits.dtype).eps ** 0.5
    isolated = gradient in {None, 0.0} and (samples or bool(change <= tolerance))
    changes = torch.stack([alone, joined[1]])
    return Locality(
        isolated=isolated,
        separate=isolated
        and not samples
        and joined[0] in {None, 0.0}
        and bool((changes <= tolerance).all()),
        probes=len(near) + len(far),
        dtype=str(graph.logits.dtype).removeprefix("torch."),
        gradient=gradient,
        change=None if samples else float(change),
    )


@dataclass(frozen=True, eq=False)
class _Graph:
    """A model and a graph that probes are added to."""

    model: nn.Module
    x: Float[Tensor, "n f"]
    edge_index: Int[Tensor, "2 e"]
    logits: Float[Tensor, "n c"]

    def beside(self, probes: Tensor, joined: Tensor, ids: Tensor) -> Tensor:
        """Logits of nodes, then of probes, which have these ids in this order."""
        x = torch.cat([self.x, probes])[ids.argsort()]
        edges = torch.cat([ids[self.edge_index], ids[len(self.x) :][joined]], 1)
        return self.model(x, edges)[ids]

    def change(self, logits: Tensor, nodes: Tensor | slice = slice(None)) -> Tensor:
        """Largest change of a node's logit, per unit of the largest."""
        clean = self.logits
        apart = (logits[: len(clean)] - clean)[nodes].abs()
        return apart.amax() / clean.abs().amax() if apart.numel() else apart.new_zeros(())

    def influence(
        self, probes: Tensor, joined: Tensor, ids: Tensor
    ) -> tuple[float | None, Tensor, Tensor]:
        """Largest derivative and change of nodes' logits; directions that raise the probes'."""
        probes = probes.clone().requires_grad_()
        with torch.enable_grad():
            logits = self.beside(probes, joined, ids)
            change = self.change(logits.detach())
            if not logits.requires_grad:
                return None, change, torch.zeros_like(probes)
            # Random factors, so that no sum of derivatives is 0 but by all being 0.
            factors = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
            parts = (logits * factors.to(logits)).tensor_split([len(self.x)])
            by_nodes, by_probes = (
                torch.autograd.grad(part.sum(), probes, retain_graph=True)[0] for part in parts
            )
        return float(by_nodes.abs().max()), change, nn.functional.normalize(by_probes)


def _in_double(model: nn.Module, x: Tensor, edge_index: Tensor) -> _Graph:
    """The model in double precision if it runs there, and the graph."""
    with torch.no_grad():
        try:
            double = copy.deepcopy(model).double()
            return _Graph(double, x.double(), edge_index, double(x.double(), edge_index))
        except Exception:  # of anybody's module
            return _Graph(model, x, edge_index, model(x, edge_index))


def _probes(x: Tensor, generator: torch.Generator) -> Tensor:
    """Near copies of nodes, uniform features, one feature alone, and Gaussian ones."""
    (n, width), (low, high) = x.shape, x.aminmax()
    size = torch.maximum(-low, high)
    m = max(1, min(n, PROBE_FEATURES // width) // 4)
    copies = x[torch.randint(n, (m,), generator=generator).to(x.device)]
    which = torch.randint(width, (m, 1), generator=generator).to(x.device)
    uniform = torch.rand(m, width, generator=generator).to(x)
    noise, gaussian = torch.randn(2, m, width, generator=generator).to(x)
    single = torch.zeros_like(copies).scatter(1, which, size * noise[:, :1].sign())
    near = copies * (1 + 0.01 * noise)
    return torch.cat([near, low + (high - low) * uniform, single, size * gaussian])


def _spread(n: int, probes: int, generator: torch.Generator) -> Tensor:
    """Ids of nodes, in their order, then of probes: the first, the last, and any between."""
    is_probe = torch.zeros(n + probes, dtype=torch.bool)
    is_probe[1 + torch.randperm(n + probes - 2, generator=generator)[: probes - 2]] = True
    is_probe[[0, -1]] = True
    return torch.cat([(~is_probe).nonzero(), is_probe.nonzero()]).squeeze(1)

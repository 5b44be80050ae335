"""Check that nodes have no influence on nodes in other connected components."""

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.certificates.base import Noise, Smoothing
from robust_diffusion.errors import ConfigError
from robust_diffusion.models.checked import is_random, seeded

_FEW = 256
"""Number of probes for derivatives of logits."""

PROBE_FEATURES = 2**20
"""Most features of the other probes, 8 MiB in double precision, in addition to the graph's."""

DECADES = 4
"""Orders of magnitude above the graph's largest feature that probes reach."""

ISOLATION = "a node without edges has no influence on other nodes"
"""Assumption of certificates against injection about the model."""


@dataclass(frozen=True)
class Locality:
    """Influence of probe nodes on the nodes of a noisy graph to which no path leads."""

    isolated: bool  # whether probes without edges have no influence
    # Whether probes that are joined with each other have no influence either, so that several
    # graphs can be run in one pass; false for a model that samples.
    separate: bool
    probes: int  # number of probes without edges
    dtype: str  # float64, or the model's dtype if it does not run in double precision
    # Largest derivative of a node's logit by a feature of a probe without edges; `None` for a model
    # without derivatives.
    gradient: float | None
    # Largest change of a logit by these probes, per unit of the largest logit; `None` for a model
    # that samples.
    change: float | None

    def __str__(self) -> str:
        """Summarise the result of the check."""
        shown = [
            ("largest gradient", self.gradient),
            ("largest change, per unit of the largest logit,", self.change),
        ]
        values = "; ".join(f"{name} {value:.2g}" for name, value in shown if value is not None)
        return f"{self.probes} isolated nodes added, {self.dtype}: {values}"


def check_locality(
    model: nn.Module, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"], scheme: Smoothing
) -> Locality:
    """Measure the influence of probe nodes on a noisy graph; raise a `ConfigError` if too large."""
    edges, _ = scheme.sample(edge_index, x.size(0), Noise(0, "training"), [0])
    locality = measure_locality(model, x, edges)
    if scheme.kind == "injection" and not locality.isolated:
        if locality.change is not None and math.isnan(locality.change):
            raise no_numbers(model, scheme)
        raise ConfigError(
            f"certificate={scheme.name}: expected a model in which {ISOLATION}, got "
            f"{type(model).__name__} ({locality}); use a model without statistics over all nodes "
            "and a solver of fixed steps, or certificate=sparse"
        )
    return locality


def no_numbers(model: nn.Module, scheme: Smoothing) -> ConfigError:
    """Return the error for a model whose logits are NaN, which cannot be counted as votes."""
    return ConfigError(
        f"certificate={scheme.name}: expected a model with logits on every noisy graph, got NaN of "
        f"{type(model).__name__}; let it return numbers at nodes without edges, too"
    )


def measure_locality(
    model: nn.Module, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]
) -> Locality:
    """Add probe nodes to a graph and compare the logits of the other nodes.

    A nonzero derivative by a probe's features reveals an influence of any size, such as that of a
    mean over many nodes. A change in double precision reveals an influence without a derivative,
    such as that of a maximum or of the number of nodes. Neither reveals a dependence on features
    far from all probes. Such features cannot be searched by gradient: a gradient from other nodes'
    logits to a probe would already fail the check.
    """
    generator = torch.Generator().manual_seed(0)
    with seeded(0):
        few = _probes(x, _FEW, generator)
        gradient, ascent = _gradients(model, x, edge_index, few)
        near = _probes(x, min(len(x), PROBE_FEATURES // x.size(1)) // 2, generator)
        far = torch.cat([near, x.abs().max() * ascent])
        far = far * 10 ** (DECADES * torch.rand(len(far), 1, generator=generator).to(far))
        model, x, logits = _in_double(model, x, edge_index)
        probes = torch.cat([near, far]).to(x)
        n, ids = len(x), _spread(len(x), len(probes), generator).to(x.device)
        grown, edges = torch.cat([x, probes])[ids.argsort()], ids[edge_index]
        hub, rim = ids[n : n + 1], ids[n + 1 :]
        wheel = torch.stack([rim.repeat(2), torch.cat([hub.expand_as(rim), rim.roll(1)])])
        joined = torch.cat([edges, wheel, wheel.flip(0)], 1)
        lonely = torch.ones(n, dtype=torch.bool, device=x.device)
        lonely[edge_index] = False

        def change_on(x: Tensor, edges: Tensor, ids: Any, nodes: Any = slice(None)) -> float:
            """Return the largest change of a logit on another graph, relative to the largest."""
            with torch.no_grad():
                apart = (model(x, edges)[ids] - logits)[nodes].abs()
            largest = logits.abs().max().clamp(torch.finfo(logits.dtype).tiny)
            return float(apart.max() / largest) if apart.numel() else 0.0

        # Rounding is assumed to cost a model at most half of its digits. In double precision, that
        # is 1.5e-8 of the largest logit, less than votes in single precision can resolve. For
        # models of the package, sums in another order change logits by less than 1e-14.
        tolerance = torch.finfo(logits.dtype).eps ** 0.5
        change = None if is_random(model) else change_on(grown, edges, ids[:n])
        isolated = gradient in {None, 0.0} and (change is None or change <= tolerance)
        separate = (
            isolated
            and change is not None
            and change_on(grown, joined, ids[:n]) <= tolerance
            and change_on(x, edge_index[:, :0], slice(None), lonely) <= tolerance
        )
    return Locality(
        isolated=isolated,
        separate=separate,
        probes=len(few) + len(probes),
        dtype=str(logits.dtype).removeprefix("torch."),
        gradient=gradient,
        change=change,
    )


def _in_double(
    model: nn.Module, x: Tensor, edge_index: Tensor
) -> tuple[nn.Module, Tensor, Float[Tensor, "n c"]]:
    """Return model, features and logits in double precision, or as they are if that fails."""
    with torch.no_grad():
        try:
            double = copy.deepcopy(model).double()
            return double, x.double(), double(x.double(), edge_index)
        except Exception:  # a custom module may raise anything
            return model, x, model(x, edge_index)


def _gradients(
    model: nn.Module, x: Tensor, edge_index: Tensor, probes: Tensor
) -> tuple[float | None, Tensor]:
    """Return the largest derivative of nodes' logits by probes, and ascent directions of probes."""
    probes.requires_grad_()
    with torch.enable_grad():
        of_nodes = model(torch.cat([x, probes]), edge_index)[: len(x)]
        of_probes = model(probes, edge_index[:, :0])
        if not of_nodes.requires_grad:
            return None, torch.zeros_like(probes)
        by_probes = [
            # A sum with random factors only has a derivative of 0 if all logits have.
            torch.autograd.grad(
                logits, probes, torch.randn_like(logits), allow_unused=True, materialize_grads=True
            )[0]
            for logits in (of_nodes, of_probes)
        ]
    return float(by_probes[0].abs().max()), nn.functional.normalize(by_probes[1])


def _probes(x: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """Draw probes: near copies of nodes, uniform features, single features, and Gaussian ones."""
    (n, width), (low, high), m = x.shape, x.aminmax(), number // 4 + 1
    size = torch.maximum(-low, high)
    copies = x[torch.randint(n, (m,), generator=generator).to(x.device)]
    which = torch.randint(width, (m, 1), generator=generator).to(x.device)
    uniform = torch.rand(m, width, generator=generator).to(x)
    noise, gaussian = torch.randn(2, m, width, generator=generator).to(x)
    single = torch.zeros_like(copies).scatter(1, which, size * noise[:, :1].sign())
    near = copies * (1 + 0.01 * noise)
    return torch.cat([near, low + (high - low) * uniform, single, size * gaussian])


def _spread(n: int, probes: int, generator: torch.Generator) -> Tensor:
    """Draw ids of nodes, in order, then of probes: the first, the last, and random ones between."""
    is_probe = torch.zeros(n + probes, dtype=torch.bool)
    is_probe[1 + torch.randperm(n + probes - 2, generator=generator)[: probes - 2]] = True
    is_probe[[0, -1]] = True
    return torch.cat([(~is_probe).nonzero(), is_probe.nonzero()]).squeeze(1)

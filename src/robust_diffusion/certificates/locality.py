"""Check that nodes have no influence on nodes in other connected components."""

import copy
import math
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from robust_diffusion.certificates.base import Noise, Smoothing
from robust_diffusion.errors import ConfigError, is_out_of_memory
from robust_diffusion.models.modules import seeded

PROBE_FEATURES = 2**20
"""Most features of the probes, 8 MiB in double precision, in addition to the graph's."""

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
    probes: int  # most nodes that were added at once
    dtype: str  # float64, or the model's dtype if it does not run in double precision
    # Largest change of a logit by probes without edges, per unit of the largest logit, infinite if
    # it becomes NaN; `None` for a model that samples and has no NaN.
    change: float | None

    def __str__(self) -> str:
        """Summarise the result of the check."""
        change = "" if self.change is None else f": largest relative change {self.change:.2g}"
        return f"{self.probes} isolated nodes added, NaN and random features, {self.dtype}{change}"


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
            f"{_class_name(model)} ({locality}); use a model without statistics over all nodes "
            "or dense matrices of nodes and a solver of fixed steps, or certificate=sparse"
        )
    return locality


def _class_name(model: nn.Module) -> str:
    return str(getattr(model, "class_name", type(model).__name__))


def no_numbers(model: nn.Module, scheme: Smoothing) -> ConfigError:
    """Return the error for a model whose logits are NaN, which cannot be counted as votes."""
    return ConfigError(
        f"certificate={scheme.name}: expected a model with logits on every noisy graph, got NaN of "
        f"{_class_name(model)}; let it return numbers at nodes without edges, too"
    )


def measure_locality(
    model: nn.Module, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]
) -> Locality:
    """Add nodes without edges to a graph and compare the logits of the other nodes.

    Arithmetic with NaN results in NaN, so NaN features show an influence of any size. A model that
    raises on NaN, or loses it, is judged by infinite and random features, which do not show a
    dependence on features far from all of them.
    """
    generator = torch.Generator().manual_seed(0)
    with seeded(0), torch.no_grad():
        model, x, logits = _in_double(model, x, edge_index)
        run = partial(_logits_beside, model, x, edge_index, generator)
        again = model(x, edge_index)  # differs if the model samples
        is_random = not torch.equal(again.nan_to_num(), logits.nan_to_num())

        def change_to(others: Tensor) -> float:
            """Return the largest change of a logit, relative to the largest logit.

            It is infinite if a logit becomes NaN, and NaN if the logits have been NaN before. The
            draws of a model that samples depend on the number of nodes, so only NaN counts.
            """
            others = logits + 0 * others if is_random else others
            change = (others - logits).abs().nan_to_num(torch.inf, torch.inf).max()
            return float(change / logits.abs().max().clamp(torch.finfo(logits.dtype).tiny))

        # Rounding is assumed to cost a model at most half of its digits. In double precision, that
        # is 1.5e-8 of the largest logit, less than votes in single precision can resolve. For
        # models of the package, sums in another order change logits by less than 1e-14.
        tolerance = torch.finfo(logits.dtype).eps ** 0.5
        near = _probes(x, max(4, min(len(x), PROBE_FEATURES // x.size(1))) // 2, generator)
        far = near * 10 ** (DECADES * torch.rand(len(near), 1, generator=generator).to(near))
        probes = torch.cat([near, far])

        def influence(number: int, *, joined: bool = False) -> float:
            """Return the largest change by this number of random, NaN and infinite probes."""
            changes = [change_to(run(probes[:number], joined=joined))]
            for value in (torch.nan, torch.inf, -torch.inf):
                try:
                    tainted = torch.full_like(probes[:number], value)
                    changes.append(change_to(run(tainted, joined=joined)))
                except Exception as error:  # a custom module may raise anything on NaN
                    if is_out_of_memory(error):
                        raise
            return max(changes, key=lambda change: torch.inf if math.isnan(change) else change)

        change = max(map(influence, (1, 2, 4, len(probes))))
        isolated = change <= tolerance
        lonely = torch.ones(len(x), 1, dtype=torch.bool, device=x.device)
        lonely[edge_index] = False
        separate = (
            isolated
            and not is_random
            and influence(len(probes), joined=True) <= tolerance
            and change_to(torch.where(lonely, model(x, edge_index[:, :0]), logits)) <= tolerance
        )
    return Locality(
        isolated=isolated,
        separate=separate,
        probes=len(probes),
        dtype=str(logits.dtype).removeprefix("torch."),
        change=None if is_random and change == 0 else change,
    )


def _logits_beside(
    model: nn.Module,
    x: Tensor,
    edges: Tensor,
    generator: torch.Generator,
    probes: Tensor,
    *,
    joined: bool = False,
) -> Tensor:
    """Return the logits of nodes beside probes without edges, or with edges that join probes."""
    n = len(x)
    ids = _spread(n, len(probes), generator).to(x.device)
    edges, hub, rim = ids[edges], ids[n : n + 1], ids[n + 1 :]
    if joined:
        wheel = torch.stack([rim.repeat(2), torch.cat([hub.expand_as(rim), rim.roll(1)])])
        edges = torch.cat([edges, wheel, wheel.flip(0)], 1)
    logits: Tensor = model(torch.cat([x, probes])[ids.argsort()], edges)[ids[:n]]
    return logits


def _in_double(
    model: nn.Module, x: Tensor, edge_index: Tensor
) -> tuple[nn.Module, Tensor, Float[Tensor, "n c"]]:
    """Return model, features and logits in double precision, or as they are if that fails."""
    try:
        double = copy.deepcopy(model).double()
        return double, x.double(), double(x.double(), edge_index)
    except Exception:  # a custom module may raise anything
        return model, x, model(x, edge_index)


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
    """Draw ids of nodes, in order, then of probes: the last, the first, and random ones between."""
    is_probe = torch.zeros(n + probes, dtype=torch.bool)
    order = torch.randperm(n + probes - 2, generator=generator)
    is_probe[1 + order[: max(0, probes - 2)]] = True
    is_probe[0], is_probe[-1] = probes > 1, True
    return torch.cat([(~is_probe).nonzero(), is_probe.nonzero()]).squeeze(1)

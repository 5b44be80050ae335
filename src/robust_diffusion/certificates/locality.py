"""Check that nodes have no influence on nodes in other connected components."""

import copy
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from robust_diffusion.certificates.base import Noise, Smoothing
from robust_diffusion.errors import ConfigError, is_out_of_memory
from robust_diffusion.models.modules import seeded

_FEW = 256
"""Number of probes for derivatives of logits."""

PROBE_FEATURES = 2**20
"""Most features of the other probes, 8 MiB in double precision, in addition to the graph's."""

DECADES = 4
"""Orders of magnitude above the graph's largest feature that probes reach."""

TAINTS = (
    *((torch.nan, 1, False), (torch.nan, 1, True), (torch.inf, 1, False), (-torch.inf, 1, False)),
    *((torch.nan, 2, False), (torch.nan, 4, False)),
)
"""Features and number of added nodes, and whether comparisons with NaN are true."""

COMPARISONS = frozenset(["ge", "gt", "le", "lt"])
"""Operations that are false if an argument is NaN."""

LOSSY = frozenset(
    [
        *("fmax", "fmin", "heaviside", "nan_to_num", "nanmedian", "nansum", "sgn", "sign"),
        *("kthvalue", "sort", "topk"),  # NaN is above all numbers, and may be left out
    ]
)
"""Operations with floating-point results that may lose NaN."""

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
    # Whether NaN features decide; if not, since the model raises or may lose NaN, random ones are
    # tried as well.
    decided: bool
    # Largest derivative of a node's logit by a random feature of a probe without edges; `None` if
    # none are tried, and for a model without derivatives.
    gradient: float | None
    # Largest change of a logit by these probes, per unit of the largest logit, infinite if it
    # becomes NaN; `None` for a model that samples and has no NaN.
    change: float | None

    def __str__(self) -> str:
        """Summarise the result of the check."""
        shown = [
            ("largest gradient", self.gradient),
            ("largest change, per unit of the largest logit,", self.change),
        ]
        values = "; ".join(f"{name} {value:.2g}" for name, value in shown if value is not None)
        features = "NaN and infinite" if self.decided else "NaN, infinite and random"
        return f"{self.probes} isolated nodes added, {features} features, {self.dtype}: {values}"


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


class _Comparisons(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Record of operations that may lose NaN; if `as_true`, comparisons with NaN are true.

    Comparisons with NaN are false otherwise, which hides a threshold that NaN would have to exceed.
    """

    def __init__(self, *, as_true: bool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.as_true = as_true
        self.lose_nan = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Tensor | Any:
        """Run an operation of PyTorch."""
        output, name = func(*args, **(kwargs or {})), func.overloadpacket.__name__
        first = next(iter(tree_leaves(output)), None)
        # Integers, Booleans and Python numbers cannot be NaN.
        lossy = name in LOSSY or not (isinstance(first, Tensor) and first.is_floating_point())
        for x in args if lossy else ():
            if isinstance(x, Tensor) and x.is_floating_point():
                if name not in COMPARISONS:
                    self.lose_nan |= bool(x.isnan().any())
                elif self.as_true:
                    output = output | x.isnan()
        return output


def measure_locality(
    model: nn.Module, x: Float[Tensor, "n f"], edge_index: Int[Tensor, "2 e"]
) -> Locality:
    """Add nodes with NaN features to a graph and compare the logits of the other nodes.

    Arithmetic with NaN results in NaN, which therefore shows an influence of any size and behind
    any threshold. If a model raises on NaN, or may lose it, random features are added as well. They
    do not show a dependence on features far from all of them. Such features cannot be searched by
    gradient: a gradient from other nodes' logits to a probe would already fail the check.
    """
    generator = torch.Generator().manual_seed(0)
    with seeded(0), torch.no_grad():
        model, x, logits = _in_double(model, x, edge_index)
        run = partial(_logits_beside, model, x, edge_index, generator)
        lonely = torch.ones(len(x), 1, dtype=torch.bool, device=x.device)
        lonely[edge_index] = False
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
        many = max(4, min(len(x), PROBE_FEATURES // x.size(1)))
        changes, decided, gradient = [], True, None
        for value, number, as_true in [*TAINTS, (torch.nan, many, True)]:
            probes = x.new_full((number, x.size(1)), value)
            try:
                with _Comparisons(as_true=as_true) as comparisons:
                    of_nodes, of_probes = run(probes)
            except Exception as error:  # a custom module may raise anything on NaN
                if is_out_of_memory(error):
                    raise
                decided = False
                continue
            changes.append(change_to(of_nodes))
            if math.isnan(value):
                decided &= not comparisons.lose_nan and bool(of_probes.isnan().all())
        if not decided and max(changes, default=0.0) <= tolerance:
            gradient, ascent = _gradients(model, x, edge_index, _probes(x, _FEW, generator))
            near = _probes(x, many // 2, generator)
            far = torch.cat([near, x.abs().max() * ascent])
            far = far * 10 ** (DECADES * torch.rand(len(far), 1, generator=generator).to(far))
            probes = torch.cat([near, far])
            numbers = *(number for _, number, _ in TAINTS), len(probes)
            changes += [change_to(run(probes[:number])[0]) for number in set(numbers)]
        change = max(changes)
        isolated = gradient in {None, 0.0} and change <= tolerance
        separate = (
            isolated
            and not is_random
            and change_to(run(probes, joined=True)[0]) <= tolerance
            and change_to(torch.where(lonely, model(x, edge_index[:, :0]), logits)) <= tolerance
        )
    return Locality(
        isolated=isolated,
        separate=separate,
        probes=len(probes),
        dtype=str(logits.dtype).removeprefix("torch."),
        decided=decided,
        gradient=gradient,
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
) -> tuple[Tensor, Tensor]:
    """Return the logits of nodes and of probes without edges, or with edges that join probes."""
    n = len(x)
    ids = _spread(n, len(probes), generator).to(x.device)
    edges, hub, rim = ids[edges], ids[n : n + 1], ids[n + 1 :]
    if joined:
        wheel = torch.stack([rim.repeat(2), torch.cat([hub.expand_as(rim), rim.roll(1)])])
        edges = torch.cat([edges, wheel, wheel.flip(0)], 1)
    logits = model(torch.cat([x, probes])[ids.argsort()], edges)[ids]
    return logits[:n], logits[n:]


def _in_double(
    model: nn.Module, x: Tensor, edge_index: Tensor
) -> tuple[nn.Module, Tensor, Float[Tensor, "n c"]]:
    """Return model, features and logits in double precision, or as they are if that fails."""
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
    """Draw ids of nodes, in order, then of probes: the last, the first, and random ones between."""
    is_probe = torch.zeros(n + probes, dtype=torch.bool)
    order = torch.randperm(n + probes - 2, generator=generator)
    is_probe[1 + order[: max(0, probes - 2)]] = True
    is_probe[0], is_probe[-1] = probes > 1, True
    return torch.cat([(~is_probe).nonzero(), is_probe.nonzero()]).squeeze(1)

"""Kernels in C++, called through plain pointers; `native` holds the mathematics."""

import ctypes
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor

from robust_diffusion.operators.graph import Graph, SortedEdges, check_edges
from robust_diffusion.operators.kernels.base import (
    Attended,
    Diffused,
    Kernels,
    Modulation,
    PropagationSteps,
    Tensors,
    check_sizes,
)
from robust_diffusion.operators.kernels.build import load_library

PADDING = 16
"""Node features are padded with 0 to a multiple of this many numbers."""

HEADS = frozenset([1, 2, 4, 8])
"""Numbers of heads for which there are kernels."""


_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64
_REALS = {torch.float32: "float", torch.float64: "double"}
# Of each function in native/kernels.cpp: p for a pointer, i for an integer, d for a real number.
_ARGUMENTS = {
    "scores": "pipp",
    "softmax_forward": "pipp",
    "attention_forward": "pipppp",
    "attention_backward": "pipppp" + "ppip",
    "modulated_forward": "pippppi" + "pppppp",
    "modulated_backward": "pippppi" + "pppppp" + "pppip",
    "spectral_forward": "iiii" + "ppppp",
    "spectral_backward": "iii" + "pppppp",
    "propagate": "ppippppiddp",
}


class _Argument:
    """Pointer argument of a kernel: to a tensor, a structure or an array, an address, or null."""

    @staticmethod
    def from_param(value: Any) -> Any:
        if isinstance(value, ctypes.Structure):
            return ctypes.byref(value)
        return ctypes.c_void_p.from_param(address(value) if isinstance(value, Tensor) else value)


class Edges(ctypes.Structure):
    """`Edges` of native/edges.h."""

    _fields_ = (
        ("nodes", _INT),
        ("rowptr", _POINTER),
        ("source", _POINTER),
        ("destination", _POINTER),
        ("colptr", _POINTER),
        ("target", _POINTER),
        ("order", _POINTER),
        ("threads", _INT),
    )


class Projections(ctypes.Structure):
    """`Projections` of native/rows.h."""

    _fields_ = (
        ("key", _POINTER),
        ("query", _POINTER),
        ("bias", _POINTER),
        ("stride", _INT),
        ("channels", _INT),
        ("scale", ctypes.c_double),
    )


class KernelOptions(ctypes.Structure):
    """`KernelOptions` of native/kernels.cpp."""

    _fields_ = (
        ("left", ctypes.c_double),
        ("right", ctypes.c_double),
        ("floor", ctypes.c_double),
        ("ceiling", ctypes.c_double),
        ("residual", _INT),
        ("channels", _INT),
    )


class Injected(ctypes.Structure):
    """`Injected` of native/propagation.h."""

    _fields_ = (
        ("nodes", _INT),
        ("targets", _INT),
        ("target", _POINTER),
        ("chosen", _POINTER),
        ("links", _INT),
        ("link", _POINTER),
    )


class CompiledKernels(Kernels):
    """Sums over edges in C++, in a single pass and without tensors of e x d entries."""

    name = "compiled"
    heads_last = True

    def __init__(self) -> None:
        self._libraries: dict[torch.dtype, ctypes.CDLL] = {}
        self._structures: WeakKeyDictionary[SortedEdges, Edges] = WeakKeyDictionary()
        # Built when this backend is selected, not in the first epoch; float64 only on demand.
        self._library(torch.float32)

    def dots(self, x: Tensor, y: Tensor, graph: Graph) -> Tensor:
        """Return <x_u, y_v> of every edge."""
        library = self._library(x.dtype)
        check_sizes(graph, (x, y))
        x, y = _padded(x), _padded(y)
        out = x.new_empty(graph.num_edges)
        ends = Projections(address(x), address(y), None, x.size(1), x.size(1), 1.0)
        library.scores(self._edges(graph), 1, ends, out)
        return out

    def softmax(self, scores: Tensor, weight: Tensor, graph: Graph) -> Tensor:
        """Return exp(s) / sum of w exp(s) over each row."""
        check_sizes(graph, (), (scores, weight))
        relative = scores.clone()
        library = self._library(scores.dtype)
        library.softmax_forward(self._edges(graph), scores.size(1), weight, relative)
        return relative

    def attend(
        self, projected: Tensor, bias: Tensor | None, weight: Tensor, graph: Graph
    ) -> Attended:
        """Return the attention; `relative` is [e, h]."""
        library = self._library(projected.dtype)
        check_sizes(graph, (projected,), (weight,))
        heads = projected.size(3)
        padded = _padded(projected.flatten(2)), _padded_bias(bias)
        projections = _projections(*padded, projected.size(2))
        relative = projected.new_empty(graph.num_edges, heads)
        attention = torch.empty_like(weight)
        edges = self._edges(graph)
        library.attention_forward(edges, heads, projections, weight, relative, attention)
        return Attended(projected, bias, weight, graph, attention, relative)

    def attend_backward(
        self, grad: Tensor, attended: Attended, *, with_weight: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Return the gradients by keys and queries, and by the weights."""
        projected, weight, graph = attended.projected, attended.weight, attended.graph
        library = self._library(projected.dtype)
        padded = _padded(projected.flatten(2)), _padded_bias(attended.bias)
        projections = _projections(*padded, projected.size(2))
        d_padded = weight.new_empty(graph.num_nodes, 2, padded[0].size(2))
        d_weight = torch.zeros_like(weight) if with_weight else None
        edges = self._edges(graph, both_orders=True)
        shared = edges, projected.size(3), projections, weight, attended.relative
        library.attention_backward(*shared, grad, *_sides(d_padded), d_weight)
        return _without_padding(d_padded, projected), d_weight

    def diffuse(
        self,
        z: Tensor,
        projected: Tensor,
        bias: Tensor | None,
        weight: Tensor,
        graph: Graph,
        modulation: Modulation,
    ) -> tuple[Tensor, Diffused]:
        """Diffuse in two passes over the edges: up to the gradient norms, then the rest."""
        library = self._library(z.dtype)
        check_sizes(graph, (z, projected), (weight,))
        channels, heads = z.size(1), projected.size(3)
        features = _padded(z)
        padded = _padded(projected.flatten(2)), _padded_bias(bias)
        projections = _projections(*padded, projected.size(2))
        options = _options(modulation, channels)
        relative = z.new_empty(graph.num_edges, heads)
        attended = Attended(projected, bias, weight, graph, torch.empty_like(weight), relative)
        difference = torch.empty_like(features if modulation.residual else weight)
        norm = z.new_empty(graph.num_nodes)
        diffused = Diffused(attended, z, modulation, difference, norm, torch.empty_like(weight))
        out = torch.empty_like(features)
        width = features.size(1)
        shared = self._edges(graph), heads, projections, options, weight, features, width
        library.modulated_forward(*shared, *_parts(diffused), out)
        return out[:, :channels], diffused

    def diffuse_backward(
        self, grad: Tensor, diffused: Diffused, *, with_weight: bool
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Differentiate in four passes over the edges; each completes a value of every node."""
        attended = diffused.attended
        projected, weight, graph = attended.projected, attended.weight, attended.graph
        channels, library = diffused.z.size(1), self._library(diffused.z.dtype)
        z, grad = _padded(diffused.z), _padded(grad)
        padded = _padded(projected.flatten(2)), _padded_bias(attended.bias)
        projections = _projections(*padded, projected.size(2))
        options = _options(diffused.modulation, channels)
        d_z = torch.empty_like(z)
        d_padded = weight.new_empty(graph.num_nodes, 2, padded[0].size(2))
        d_weight = torch.empty_like(weight) if with_weight else None
        edges, heads = self._edges(graph, both_orders=True), projected.size(3)
        shared = edges, heads, projections, options, weight, z, z.size(1), *_parts(diffused)
        library.modulated_backward(*shared, grad, d_z, *_sides(d_padded), d_weight)
        return d_z[:, :channels], _without_padding(d_padded, projected), d_weight

    def spectral(
        self, matrices: Tensors, left: Tensors, right: Tensors, *, iterate: bool
    ) -> tuple[Tensor, Tensor]:
        """Divide matrices by their largest singular values, all in one call."""
        library = self._library(matrices[0].dtype)
        normalized = matrices[0].new_empty(len(matrices), *matrices[0].shape)
        sigma = normalized.new_empty(len(matrices))
        inputs = map(pointers, (matrices, left, right))
        library.spectral_forward(*normalized.shape, iterate, *inputs, normalized, sigma)
        return normalized, sigma

    def spectral_backward(
        self, grad: Tensor, normalized: Tensor, left: Tensor, right: Tensor, sigma: Tensor
    ) -> Tensor:
        """Return the gradients by the matrices, all in one call."""
        gradient = torch.empty_like(normalized)
        tensors = grad, normalized, left, right, sigma, gradient
        self._library(grad.dtype).spectral_backward(*normalized.shape, *tensors)
        return gradient

    def propagate(
        self,
        graph: Graph,
        degree: Tensor,
        local: Tensor,
        added: Injected,
        added_local: Tensor,
        steps: PropagationSteps,
    ) -> Tensor:
        """Return the propagated rows of the targets; see `operators.propagation`."""
        library, targets = self._library(local.dtype), added.targets
        local, added_local = _padded(local, 8), _padded(added_local, 8)
        out = local.new_empty(targets, local.size(1))
        weights = steps.weights
        count = steps.num_steps if weights is None else len(weights)
        penalties = steps.lambda1, steps.lambda2
        at = self._edges(graph), degree, local.size(1), local, added, added_local
        library.propagate(*at, weights, count, *penalties, out)
        return out

    def _library(self, dtype: torch.dtype) -> ctypes.CDLL:
        if dtype not in self._libraries:
            self._libraries[dtype] = load_kernels(dtype)
        return self._libraries[dtype]

    def _edges(self, graph: Graph, *, both_orders: bool = False) -> Edges:
        """Return the edges as the structure that C++ reads; only derivatives read both orders."""
        structure = self._structures.get(edges := graph.edges)
        if structure is None:
            check_edges(graph.edge_index, graph.num_nodes)  # else pointers could leave the tensors
            by_dst = edges.rowptr, edges.sources, edges.destinations
            structure = Edges(graph.num_nodes, *map(address, by_dst))
            self._structures[edges] = structure
        if both_orders and structure.colptr is None:
            structure.colptr = address(edges.colptr)
            structure.target = address(edges.dst_by_source)
            structure.order = address(edges.order_by_source)
        structure.threads = torch.get_num_threads()
        return structure


def _projections(padded: Tensor, bias: Tensor | None, width: int) -> Projections:
    key, query, stride = _sides(padded)
    at_bias = None if bias is None else address(bias)
    return Projections(key, query, at_bias, stride, padded.size(2), 1 / math.sqrt(width))


@lru_cache
def _options(modulation: Modulation, channels: int) -> KernelOptions:
    m = modulation
    return KernelOptions(m.left, m.right, m.floor, m.ceiling, m.residual, channels)


def _parts(diffused: Diffused) -> tuple[Tensor, ...]:
    attended = diffused.attended.relative, diffused.attended.attention
    return *attended, diffused.difference, diffused.norm, diffused.relative


def _padded(x: Tensor, multiple: int = PADDING) -> Tensor:
    missing = -x.size(-1) % multiple
    return F.pad(x, (0, missing)) if missing else x


def _padded_bias(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else _padded(bias.flatten())


def _without_padding(padded: Tensor, projected: Tensor) -> Tensor:
    width, heads = projected.shape[2:]
    trimmed: Tensor = padded[:, :, : width * heads]
    return trimmed.view(*trimmed.shape[:2], width, heads)


def _sides(padded: Tensor) -> tuple[int, int, int]:
    """Return the addresses of keys and queries, and the stride between nodes."""
    key, sides, channels = padded.data_ptr(), padded.size(1), padded.size(2)
    return key, key + (sides - 1) * channels * padded.element_size(), sides * channels


def load_kernels(dtype: torch.dtype) -> ctypes.CDLL:
    """Load the kernels for float32 or float64, with the types of their arguments.

    Raises:
        BuildError: They are not built and cannot be.
    """
    library = load_library(_REALS[dtype])
    kinds = {"p": _Argument, "i": _INT, "d": ctypes.c_double}
    for function, arguments in _ARGUMENTS.items():
        symbol = getattr(library, function)
        symbol.argtypes = [kinds[kind] for kind in arguments]
        symbol.restype = None
    return library


def pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """Return the addresses of several tensors as an array."""
    return (_POINTER * len(tensors))(*map(address, tensors))


def address(tensor: Tensor) -> int:
    """Return the address of a tensor's first number."""
    return tensor.data_ptr()

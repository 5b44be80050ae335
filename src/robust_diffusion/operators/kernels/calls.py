"""Signatures and structures of the functions in native/kernels.cpp."""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from robust_diffusion.operators.kernels.build import load_library

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64
_REALS = {torch.float32: "float", torch.float64: "double"}
_ARGUMENTS = {  # of each function in native/kernels.cpp: p for a pointer, i for an integer
    "scores": "pipp",
    "softmax_forward": "pipp",
    "attention_forward": "pipppp",
    "attention_backward": "pipppp" + "ppip",
    "modulated_forward": "pippppi" + "pppppp",
    "modulated_backward": "pippppi" + "pppppp" + "pppip",
    "spectral_forward": "iiii" + "ppppp",
    "spectral_backward": "iii" + "pppppp",
}


class _Argument:
    """A pointer to a kernel: that of a tensor, a structure or an array, an address, or null."""

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


def load_kernels(dtype: torch.dtype) -> ctypes.CDLL:
    """The kernels for one type of number, float32 or float64, ready to be called.

    Raises:
        BuildError: They are not built and cannot be.
    """
    library = load_library(_REALS[dtype])
    kinds = {"p": _Argument, "i": _INT}
    for function, arguments in _ARGUMENTS.items():
        symbol = getattr(library, function)
        symbol.argtypes = [kinds[kind] for kind in arguments]
        symbol.restype = None
    return library


def pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """The addresses of several tensors, as an array."""
    return (_POINTER * len(tensors))(*map(address, tensors))


def address(tensor: Tensor) -> int:
    """Address of a tensor's first number."""
    return tensor.data_ptr()

"""Writes a digest of what each operator that networks are made of gives, for `test_arithmetic`."""

import hashlib
import json
import sys
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from robust_diffusion.arithmetic import set_up_arithmetic

ROWS, COLUMNS, GROUPS = 300, 70, 50

ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "log": torch.log,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "atan": torch.atan,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "power": lambda x: x**1.5,
    "root of a power": lambda x: x**0.5,
    "elu": functional.elu,
    "leaky relu": functional.leaky_relu,
    "softmax": lambda x: x.softmax(1),
    "log softmax": lambda x: x.log_softmax(1),
    "normalize": functional.normalize,
    "norm": lambda x: x.norm(dim=1),
    "deviation": lambda x: x.std(0),
    "mean": lambda x: x.mean(1),
    "product": lambda x: x @ x.T,
    "product with a vector": lambda x: x @ x[0],
    "products in a batch": lambda x: torch.einsum("bik,bjk->bij", *[x.view(3, -1, COLUMNS)] * 2),
    "layer norm": lambda x: functional.layer_norm(x, (COLUMNS,)),
    "batch norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "cross entropy": lambda x: functional.cross_entropy(x, torch.arange(ROWS) % COLUMNS),
    "sums by group": lambda x: x.new_zeros(GROUPS, COLUMNS).index_add(0, _groups(), x),
    "maxima by group": lambda x: x.new_zeros(GROUPS, COLUMNS).scatter_reduce(
        0, _groups()[:, None].expand_as(x), x, "amax"
    ),
    "sparse product": lambda x: torch.sparse.mm(_sparse(x.dtype), x),
    "spectral norm": lambda x: _spectral(x.dtype)(x),
    "singular values": lambda x: torch.linalg.svdvals(x.detach()),
}


def main() -> None:
    """Write one line of JSON: digests by operator, values and gradients, single and double."""
    torch.set_num_threads(1)
    set_up_arithmetic()
    drawn = np.random.Generator(np.random.PCG64(0)).integers(1, 2**20, size=(ROWS, COLUMNS))
    found = {}
    for dtype in (torch.float32, torch.float64):
        x = (torch.from_numpy(drawn) / 2**20).to(dtype)
        results = {name: _with_gradient(f, x) for name, f in ELEMENTWISE.items()}
        results |= {"Adam": _adam(x), "draws": _draws(dtype)}
        found |= {f"{name}, {dtype}": _digest(*result) for name, result in results.items()}
    sys.stdout.write(json.dumps(found))


def _with_gradient(f: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    leaf = x.clone().requires_grad_()
    value = f(leaf)
    if not value.requires_grad:
        return [value]
    value.square().sum().backward()
    assert leaf.grad is not None
    return [value.detach(), leaf.grad]


def _adam(x: Tensor) -> list[Tensor]:
    parameter = nn.Parameter(x.clone())
    adam = torch.optim.Adam([parameter], lr=0.01, weight_decay=0.01)
    for step in range(1, 6):
        parameter.grad = (x - 0.5) * step
        adam.step()
    return [parameter.detach()]


def _draws(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    like = torch.empty(333, dtype=dtype)
    kept = functional.dropout(torch.ones_like(like), 0.5)
    return [kept, torch.randn_like(like), torch.rand_like(like), torch.randperm(333)]


def _groups() -> Tensor:
    return torch.arange(ROWS) * 7 % GROUPS


def _sparse(dtype: torch.dtype) -> Tensor:
    values = torch.arange(1, ROWS + 1).to(dtype) / ROWS
    return torch.sparse_coo_tensor(torch.stack([_groups(), torch.arange(ROWS)]), values)


def _spectral(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.utils.parametrizations.spectral_norm(nn.Linear(COLUMNS, 64, dtype=dtype))


def _digest(*tensors: Tensor) -> str:
    content = b"".join(tensor.contiguous().numpy().tobytes() for tensor in tensors)
    return hashlib.sha256(content).hexdigest()[:8]


if __name__ == "__main__":
    main()

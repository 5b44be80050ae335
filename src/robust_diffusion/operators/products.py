"""The weighted sum over segments that all sparse products are made of."""

import torch
import torch.nn.functional as F
from torch import Tensor


def product_over(pointers: Tensor, columns: Tensor, weight: Tensor, z: Tensor) -> Tensor:
    """CSR matrix (pointers, columns, weight) times z, without autograd.

    Where autocast has made one of a lower precision than the other, that of the other is taken.
    """
    dtype = torch.promote_types(weight.dtype, z.dtype)
    weight, z = weight.to(dtype), z.to(dtype)
    # embedding_bag is torch's fastest weighted sum over segments on CPU; it needs at least one
    # entry, and on an empty graph the product is zero.
    if columns.numel() == 0:
        return z.new_zeros(pointers.numel() - 1, z.size(1))
    return F.embedding_bag(
        columns, z, pointers, mode="sum", per_sample_weights=weight, include_last_offset=True
    )

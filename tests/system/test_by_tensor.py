"""Values that are found once for a tensor."""

import gc

import torch
from torch import Tensor

from robust_diffusion.system.by_tensor import ByTensor


def test_a_value_is_found_once_for_each_tensor_key_and_version() -> None:
    kept, asked = ByTensor(), []

    def find(tensor: Tensor, key: str = "") -> float:
        def compute() -> float:
            asked.append(key)
            return tensor.sum().item()

        return kept.kept(tensor, key, compute)

    one, other = torch.ones(2), torch.ones(2)
    assert [find(one), find(one), find(other), find(one, "a")] == [2] * 4
    assert len(asked) == 3
    one[0] = 5
    assert [find(one), find(one)] == [6, 6]
    assert len(asked) == 4
    with torch.inference_mode():
        unversioned = torch.ones(2)
        assert find(unversioned) == 2
        unversioned.zero_()
        assert find(unversioned) == 0
        assert not kept.kept(other, "tensor", lambda: torch.ones(1)).is_inference()
    del other
    gc.collect()
    assert len(kept._known) == 1

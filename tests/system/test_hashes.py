import gc
import json
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from robust_diffusion.system.hashes import canonical_json
from robust_diffusion.system.tensor_hashes import ByTensor, state_hash, tensor_hash

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=30)
@given(json_values)
def test_canonical_json_loses_nothing(value: Any) -> None:
    text = canonical_json(value, "key")
    assert json.loads(text) == value
    assert text.isascii()
    assert canonical_json(json.loads(text), "key") == text


def test_state_hash_follows_the_weights() -> None:
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    state = module.state_dict()
    before = state_hash(state)
    assert state_hash(dict(reversed(state.items()))) == before
    with torch.no_grad():
        module[0].bias[1] += 1e-3
    after = state_hash(module.state_dict())
    assert after != before
    renamed = {name.replace("weight", "w"): tensor for name, tensor in module.state_dict().items()}
    assert state_hash(renamed) != after


def test_tensor_hash_tells_apart_what_is_seen_to_differ() -> None:
    x = torch.arange(6)
    single = [x, x.reshape(2, 3), x.reshape(3, 2), x.double(), x.int(), x.bool(), x.flip(0), x[:0]]
    single += [x[:0].reshape(0, 3), x.bfloat16(), *map(torch.tensor, (0, 0.0, -0.0))]
    several: list[tuple[Tensor, ...]] = [(x, x), (x[:3], x[3:]), (x[:2], x[2:]), ()]
    tensors = [*((tensor,) for tensor in single), *several]
    assert len({tensor_hash(*group) for group in tensors}) == len(tensors)
    y = torch.arange(12.0).reshape(3, 4)
    assert tensor_hash(y.T) == tensor_hash(y.T.contiguous())
    assert tensor_hash(y[:, ::2]) == tensor_hash(y[:, ::2].clone().requires_grad_())


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

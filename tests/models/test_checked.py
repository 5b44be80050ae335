from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn.models import GCN

from robust_diffusion.errors import ConfigError
from robust_diffusion.models.checked import check_model, device_of
from tests.drawn import FEATURES, drawn_data

DATA = drawn_data()


class Wrong(nn.Module):
    """Returns what it is told to."""

    def __init__(self, result: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.result = result

    def forward(self, x: Tensor, edge_index: Tensor) -> Any:
        return self.result(x)


def test_a_model_is_tried_in_eval_mode_and_left_as_it_was() -> None:
    model = GCN(FEATURES, 8, 2, 7, dropout=0.5)
    first, second = (check_model(model, DATA.x, DATA.edge_index, 7) for _ in range(2))
    assert torch.equal(first, second)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda x, edge_index: x, "model: is a function; give an nn.Module"),
        (GCN, "model: is a class"),
        (GCN(FEATURES, 8, 2, 7, cached=True), "model: GCNConv .*cached=False"),
        (GCN(FEATURES + 1, 8, 2, 7), r"model: GCN does not take .* 8 features per node \(mat1"),
        (nn.Linear(FEATURES, 7), r"model: Linear does not take .*\(x, edge_index\) to logits"),
        (Wrong(lambda x: (x, x)), "model: Wrong returns a tuple"),
        (Wrong(lambda x: x[1:]), r"model: Wrong returns shape \(119, 8\)"),
        (Wrong(lambda x: x.argmax(1)), r"model: Wrong returns shape \(120,\)"),
        (Wrong(lambda x: x.long()), r"model: Wrong returns shape .* of torch\.int64"),
        (
            Wrong(lambda x: x[:, :3]),
            r"model: Wrong tells 3 classes apart, and the labels are 0\.\.6",
        ),
        (Wrong(lambda x: x / 0), "model: the logits of Wrong are not finite"),
    ],
)
def test_what_is_no_classifier_of_the_graph_is_refused(model: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_model(model, DATA.x, DATA.edge_index, 7)


def test_errors_name_the_argument() -> None:
    with pytest.raises(ConfigError, match=r"^surrogates\[a\]: is a class"):
        check_model(GCN, DATA.x, DATA.edge_index, 7, name="surrogates[a]")


def test_device() -> None:
    assert device_of(nn.Linear(1, 1, device="meta")) == torch.device("meta")
    assert device_of(nn.Identity()) == torch.device("cpu")

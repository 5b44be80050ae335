"""Raw features behind a normalisation, in a model that is trained and attacked."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from robust_diffusion.attacks import Budget
from robust_diffusion.data import GraphDataModule
from robust_diffusion.data.normalize import feature_scale
from robust_diffusion.data.sources import citation_like_graph
from robust_diffusion.models.adaptive import adaptive_form
from robust_diffusion.models.raw_features import RawFeatures
from robust_diffusion.robustness import evaluate
from robust_diffusion.training.fit_model import fit
from tests import tutorials  # noqa: F401  # the reader's modules


def graph() -> Any:
    return citation_like_graph(num_nodes=200, num_edges=400, num_features=16)


class Reader(nn.Module):
    """Logits of raw features alone, which it keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.raw = RawFeatures()
        self.linear = nn.Linear(16, 7)
        self.seen: Any = None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        self.seen = (self.raw(x).detach(),)  # in a tuple, as no part of the module
        return self.linear(self.raw(x))


def trained(data: Any) -> Reader:
    model = Reader()
    fit(model, data, max_epochs=1, accelerator="cpu", progress=False)
    return model


@pytest.mark.parametrize("normalize", ["arctan", None])
def test_a_trained_model_reads_the_features_of_the_source(normalize: Any) -> None:
    raw = graph()
    datamodule = GraphDataModule.from_data(raw, difficulty="easy", normalize=normalize)
    model = trained(datamodule)
    model(datamodule.graph.x, raw.edge_index)
    torch.testing.assert_close(model.seen[0], raw.x, rtol=1e-5, atol=1e-5)
    # The same module on a graph of another scale, or of none.
    fit(model, raw, max_epochs=1, accelerator="cpu", progress=False)
    model(raw.x, raw.edge_index)
    assert torch.equal(model.seen[0], raw.x)


def test_the_scale_is_saved_with_the_weights() -> None:
    datamodule = GraphDataModule.from_data(graph(), difficulty="easy", normalize="arctan")
    restored = Reader()
    restored.load_state_dict(trained(datamodule).state_dict())
    restored(datamodule.graph.x, datamodule.graph.edge_index)
    torch.testing.assert_close(restored.seen[0], graph().x, rtol=1e-5, atol=1e-5)


def test_an_injected_node_is_mapped_like_any_other() -> None:
    raw = graph()
    datamodule = GraphDataModule.from_data(raw, difficulty="easy", normalize="arctan")
    scale, model = feature_scale(raw.x), trained(datamodule)
    report = evaluate(model, datamodule, budget=Budget(3, 3), attacks="random", progress=False)
    attacked = report["random"].graph
    model(attacked.x, attacked.edge_index)
    injected = slice(attacked.num_original_nodes, None)
    expected = scale.denormalize(attacked.x[injected].clamp(-0.999, 0.999))
    inside = attacked.x[injected].abs() < 0.999
    torch.testing.assert_close(
        model.seen[0][injected][inside], expected[inside], rtol=1e-4, atol=1e-4
    )


def test_gradients_pass_and_stay_finite_at_the_ends() -> None:
    x = torch.tensor([[-1.0, -0.5, 0.0, 0.9, 1.0]], dtype=torch.float64, requires_grad=True)
    raw = RawFeatures()
    raw(x).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))  # the identity, so far
    raw.follow(feature_scale(torch.tensor([[0.0, 2.0, 4.0]])))
    assert torch.autograd.gradcheck(raw.double(), x[:, 1:4].detach().requires_grad_())
    (gradient,) = torch.autograd.grad(raw(x).sum(), x)
    assert gradient.isfinite().all()


@pytest.mark.parametrize(("module", "name"), [("pruned", "PrunedGCN"), ("jaccard", "JaccardGCN")])
def test_the_adaptive_form_of_the_tutorial_predicts_the_same(module: str, name: str) -> None:
    build: Callable[..., nn.Module] = getattr(__import__(module), name)
    raw = graph()
    datamodule = GraphDataModule.from_data(raw, difficulty="easy", normalize="arctan")
    model = build(16, 7, hidden_channels=8, threshold=0.3).eval()
    for part in model.modules():
        if isinstance(part, RawFeatures):
            part.follow(datamodule.feature_scale)
    x, edge_index = datamodule.graph.x, raw.edge_index
    adapted, weight = adaptive_form(model), torch.ones(edge_index.size(1))
    torch.testing.assert_close(adapted(x, edge_index), model(x, edge_index))
    similarity = model.similarity(x, *edge_index)  # type: ignore[operator]
    assert 0 < (similarity < 0.3).sum() < similarity.numel()
    # A pruned edge is none to the model itself, and one that an attack can follow in this form.
    for form, follows in ((model, False), (adapted, True)):
        (gradient,) = torch.autograd.grad(
            form(x, edge_index, weight.requires_grad_()).square().sum(), weight
        )
        assert (gradient[similarity < 0.3].abs() > 0).any() == follows


def test_jaccard_counts_shared_words() -> None:
    jaccard = __import__("jaccard").JaccardGCN(4, 2)
    words = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    found = jaccard.similarity(words, torch.tensor([0, 0, 0]), torch.tensor([1, 2, 0]))
    torch.testing.assert_close(found, torch.tensor([1 / 3, 0.0, 1.0]))

import torch
from torch import Tensor, nn

from robust_diffusion.models.stack import Apply, LayerStack
from tests.graphs import CHANNELS, random_signal


class Plain(LayerStack):
    """Layers that see no edges."""

    def along(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Apply:
        return lambda layer, x: layer(x)


def build(num_layers: int, **options: object) -> LayerStack:
    torch.manual_seed(0)
    widths = [CHANNELS] * num_layers
    layers = [nn.Linear(CHANNELS, CHANNELS) for _ in widths]
    arguments = {"layer_norm": False, "dropout": 0.0, **options}
    return Plain(layers, widths, **arguments).double()


def run(stack: LayerStack, x: Tensor | None = None) -> Tensor:
    return stack.run(random_signal() if x is None else x, lambda layer, x: layer(x))


def test_no_activation_or_dropout_after_the_last_layer() -> None:
    stack = build(1, dropout=0.9).train()
    logits = run(stack)
    assert (logits < 0).any()
    assert torch.equal(logits, run(stack.eval()))


def test_dropout_and_activation_act_between_the_layers() -> None:
    stack, seen = build(2, dropout=0.5, activation=torch.exp), []
    stack.layers[1].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    run(stack.train())
    run(stack.eval())
    trained, evaluated = seen
    assert torch.equal(evaluated, stack.layers[0](random_signal()).exp())
    assert ((trained == 0) | torch.isclose(trained, 2 * evaluated)).all()
    assert 0 < int((trained == 0).sum()) < trained.numel()


def test_layer_norm_is_at_each_layers_entry() -> None:
    stack, seen = build(3, layer_norm=True), []
    for layer in stack.layers:
        layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    run(stack, 100 * random_signal() + 3)
    assert len(seen) == 3
    for x in seen:
        assert x.mean(1).abs().max() < 1e-9
        assert 0.8 < x.var(1, correction=0).min() <= x.var(1, correction=0).max() <= 1 + 1e-9

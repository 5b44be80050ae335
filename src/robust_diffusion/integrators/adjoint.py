"""Cutting the right-hand side off from all that came before the solve, for the adjoint."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from robust_diffusion.errors import ConfigError
from robust_diffusion.integrators.fixed_step import RightHandSide


def cut_off(
    solve: Callable[..., Tensor], inputs: Sequence[Tensor], parameters: Sequence[Tensor]
) -> Tensor:
    """A solve that sees its inputs, tensors of a graph of gradients, as leaves.

    The adjoint asks an evaluation for the gradients by all of its inputs at once. Where one input
    is made from another, as a flow's source is from its own parameters, part of the gradient would
    come twice: once inside the evaluation, and again on the way back from the first input.
    The derivative depends on the inputs and on the parameters, leaves already, alone.
    """
    return _CutOff.apply(solve, parameters, *inputs, *parameters)  # type: ignore[no-any-return, no-untyped-call]


class _CutOff(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, solve: Callable[..., Tensor], parameters: Sequence[Tensor], *inputs: Tensor
    ) -> Tensor:
        variables = inputs[: len(inputs) - len(parameters)]
        leaves = [x.detach().requires_grad_(x.requires_grad) for x in variables]
        with torch.enable_grad():
            ctx.end = solve(*leaves)
        ctx.inputs = *leaves, *parameters
        return ctx.end.detach()  # type: ignore[no-any-return]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        wanted = [x for x in ctx.inputs if x.requires_grad]
        grads = torch.autograd.grad(ctx.end, wanted, grad, retain_graph=True, allow_unused=True)
        gradients = iter(grads)
        return None, None, *(next(gradients) if x.requires_grad else None for x in ctx.inputs)


def checked(rhs: RightHandSide, parameters: Sequence[Tensor]) -> RightHandSide:
    """The right-hand side, refused if its derivative depends on tensors other than these.

    The adjoint gives gradients to the state and to `parameters` alone: those of anything else
    that the function has kept would be lost without a word.
    """
    known = {id(p if p.grad_fn is None else p.grad_fn) for p in parameters}
    done = False

    def evaluate(t: Tensor, z: Tensor) -> Tensor:
        nonlocal done
        out = rhs(t, z)
        if out.grad_fn is not None and not done:
            done = True
            _refuse_others(out, known | {id(x if x.grad_fn is None else x.grad_fn) for x in (t, z)})
        return out

    return evaluate


def _refuse_others(out: Tensor, known: set[int]) -> None:
    pending, seen = [out.grad_fn], set()
    while pending:
        node = pending.pop()
        if node is None or id(node) in known or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known:
            raise ConfigError(
                f"solver.adjoint=true: the flow depends on a tensor of shape {tuple(leaf.shape)} "
                "that the adjoint does not know of; make it a parameter of the flow, or carry it "
                "by Flow.prepare (see there), or use solver.adjoint=false"
            )
        pending += [following for following, _ in node.next_functions]

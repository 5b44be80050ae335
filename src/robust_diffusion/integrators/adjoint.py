"""Adjoint gradients: detach the solve's inputs, and check what the right-hand side depends on."""

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
    """Run a solve that sees its inputs as leaves of the autograd graph.

    The adjoint takes the gradients of an evaluation with respect to all of its inputs at once. If
    one input is computed from another, as a flow's source is from its own parameters, part of the
    gradient would be counted twice: once inside the evaluation, and again on the way back from the
    first input. The derivative must depend only on the inputs and on the parameters, which are
    leaves already.
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
    """Return a right-hand side that raises if its derivative depends on tensors other than these.

    The adjoint computes gradients only for the state and for `parameters`; the gradient of any
    other tensor that the function holds would be lost silently.
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

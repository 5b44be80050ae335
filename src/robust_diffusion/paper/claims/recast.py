"""The same comparisons with other groups: against an MLP, and under the worst case."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from robust_diffusion.paper.axes import WORST
from robust_diffusion.paper.claims.claim import Claim, Member, merged
from robust_diffusion.paper.claims.group import ACCURACY, MLP, WORST_CASE, Group
from robust_diffusion.results.cells import CLEAN


def against_mlp(claim: Claim, members: Sequence[Member]) -> list[Member]:
    """A claim's comparisons with an MLP in place of the models on the right.

    The MLP sees no edge, so its clean accuracy is that under every injection. None unless the
    claim says that models are more accurate under attack than others.
    """
    if (claim.test, claim.of) != ("greater", "level") or not all(map(_compares_models, members)):
        return []

    def swap(weight: float, group: Group) -> Group:
        if weight > 0:
            return group
        axes = {"attack": CLEAN, "dataset": str(group.dataset), "model": MLP}
        return Group(MLP, tuple(axes.items()))

    return _recast(members, swap, lambda label: re.sub(r" ?vs \S+", "", label))


def under_worst_case(claim: Claim, members: Sequence[Member]) -> list[Member]:
    """A claim's comparisons by the worst case of each model instead of its accuracy under attack.

    None unless they are about accuracies under attack of models at the default settings and budget.
    """
    groups = [group for member in members for group in member.groups]
    settings = {axis for group in groups for axis, _ in group.axes} - {"dataset", "model", "attack"}
    attacks = {group.graph for group in groups} - {CLEAN}
    if settings or not attacks or (claim.of, claim.unit) != ("level", "points"):
        return []

    def swap(_: float, group: Group) -> Group:
        graph = CLEAN if group.graph == CLEAN else WORST
        return Group(WORST_CASE, tuple(sorted((dict(group.axes) | {"attack": graph}).items())))

    return _recast(members, swap, lambda label: re.sub("|".join(sorted(attacks)), WORST, label))


def _recast(
    members: Sequence[Member], swap: Callable[[float, Group], Group], rename: Callable[[str], str]
) -> list[Member]:
    """Comparisons with other groups, equal ones once."""
    found = [
        replace(
            member,
            label=rename(member.label),
            terms=merged((weight, swap(weight, group)) for weight, group in member.terms),
            levels=tuple((at, swap(1, group)) for at, group in member.levels),
        )
        for member in members
    ]
    return list(dict.fromkeys(found))


def _compares_models(member: Member) -> bool:
    """True if the models of the two sides differ in more than an option, all under attack."""
    sides: list[set[tuple[str, str | None]]] = [set(), set()]
    for weight, group in member.terms:
        record = group.line.record
        sides[weight > 0].add((record["model"], record.get("flow")))
    attacked = all(g.graph != CLEAN and g.measure == ACCURACY and g.dataset for g in member.groups)
    return attacked and sides[0].isdisjoint(sides[1])

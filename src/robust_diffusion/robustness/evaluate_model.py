"""Robustness of any model on any graph, in one call."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from torch import nn
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph
from robust_diffusion.checks import Seed, check_value
from robust_diffusion.data.served import Served
from robust_diffusion.errors import ConfigError
from robust_diffusion.models.checked import own_context
from robust_diffusion.records.content import object_key
from robust_diffusion.records.store import ArtifactStore
from robust_diffusion.robustness.flags import Flag
from robust_diffusion.robustness.perturbed import BASELINES, Attacker, Run, attack_and_test
from robust_diffusion.robustness.report import AttackReport, RobustnessReport
from robust_diffusion.robustness.subject import (
    Subject,
    attacks_of,
    budget_of,
    subject_of,
    surrogates_of,
)
from robust_diffusion.robustness.threat import AttackedModel, Labels, WhiteBox
from robust_diffusion.system.tensor_hashes import state_hash, tensor_hash

Threat = Literal["white_box", "adaptive", "black_box"]

PROBABILITIES = "the model returns probabilities, attacked through their logarithm; return logits"


@own_context()
def evaluate(
    model: nn.Module,
    data: Data | Served,
    *,
    budget: Budget,
    attacks: str | Attack | Sequence[str | Attack] | Mapping[str, str | Attack] = "auto",
    nodes: Any = "test",
    labels: Labels = "predicted",
    threat: Threat = "white_box",
    surrogates: Sequence[nn.Module] | Mapping[str, nn.Module] = (),
    seed: int = 0,
    device: str | torch.device | None = None,
    store: str | Path | None = None,
    progress: bool = True,
) -> RobustnessReport:
    """Attack a trained model on its own graph, and report how much accuracy is left.

    Evasion: the model is not trained again, and is left as it was, as is the graph. Chance with
    the same budget is always run beside the attacks.

    Examples:
        >>> import torch
        >>> from robust_diffusion import Budget, GraphPDE, PGD, evaluate, fit
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=200, num_edges=400, num_features=16)
        >>> _ = torch.manual_seed(0)
        >>> model = GraphPDE(16, 8, 7, flow="heat")
        >>> _ = fit(model, data, max_epochs=2, accelerator="cpu")
        >>> budget = Budget(max_injected_nodes=3, max_edges_per_injected_node=3)
        >>> report = evaluate(model, data, attacks=PGD(num_steps=2), budget=budget)
        >>> [attack.name for attack in report.attacks]
        ['random', 'pgd']
        >>> report["pgd"].graph.to_data().num_nodes
        203

    Args:
        model: Any `nn.Module` of (x, edge_index[, edge_weight]) that returns logits, trained.
        data: A PyG `Data` of x, y and undirected edges, the features as the model takes them; or
            the datamodule that the model was trained with.
        budget: What each attack may spend.
        attacks: Names of `conf/attack/` such as auto, pgd or tdgia, attacks that are built already,
            or a dictionary of them by other names.
        nodes: Nodes under attack: test, val, train or all; a boolean mask; or node numbers.
        labels: Classes of the targets as the attacker takes them, `threat.labels` on the command
            line: the model's predictions or the true ones. `auto` always takes the true ones.
        threat: Model that the attacks differentiate: the model itself (white_box), its adaptive
            form (adaptive), or the surrogates alone (black_box).
        surrogates: Trained models on which the attacks are made as well, and then transferred.
        seed: Of all random choices, in 0..2^32 - 1.
        device: Where to run; `None` for where the model is.
        store: Folder that keeps every attacked graph, so that a call that was cut off goes on where
            it stopped; `None` to keep none.
        progress: Show a bar on a terminal, or log a line a minute.

    Returns:
        The report; see `RobustnessReport`.

    Raises:
        ConfigError: An argument that is not as above, or a model that does not suit the graph.
        DataError: No graph can be like `data`, or `nodes` are none of its nodes.
        AttackError: A model cannot be attacked so; for one, it has no gradient.
    """
    given = (model, data, budget, attacks, nodes, labels, threat, seed, device)
    with _prepared(*given, store, progress) as (attacker, subject, chosen):
        others = surrogates_of(surrogates, subject)
        if threat == "black_box" and not others:
            raise ConfigError("surrogates: none; threat=black_box attacks those, and not the model")
        with ExitStack() as stack:
            for tried in others.values():
                stack.enter_context(tried.ready())
            seen = {} if threat == "black_box" else {"": _form(subject.model, threat)}
            seen |= {name: tried.model for name, tried in others.items()}
            controls = _controls(chosen)
            rest = {name: of for name, of in chosen.items() if name not in controls}
            runs = _runs(subject, {"": subject.model}, controls, seed)
            runs += _runs(subject, seen, rest, seed)
            own = [Flag("probabilities", PROBABILITIES)] * subject.tried.gives_probabilities
            measured = attack_and_test(attacker, subject.model, runs, own_flags=own)
            attacked = [outcome.graph for outcome in measured.outcomes.values()]
            sees = subject.tried.sees_edges or _depends_on_edges(subject, attacked, seed)
    flags = measured.flags
    return RobustnessReport(
        model=type(subject.model).__name__,
        clean_accuracy=measured.accuracy["clean"],
        attacks=[
            AttackReport(
                name=run.label,
                kind=run.attack.kind,
                accuracy=measured.accuracy[run.label],
                is_control=run.is_control,
                made_on=run.made_on,
                flags=flags.get(run.label, ()),
                spent=of.spent,
                effort=of.effort,
                reused=of.reused,
                graph=subject.returned(of.graph),
                labels="true" if run.attack.is_worst_case else labels,
            )
            for run, of in zip(runs, measured.outcomes.values(), strict=True)
        ],
        budget=attacker.budget,
        num_targets=subject.targets.numel(),
        threat=threat,
        labels=labels,
        seed=seed,
        flags=flags.get("victim", ()),
        dataset=str(data.name) if isinstance(data, Served) else "",
        clean_graph=subject.fingerprint,
        weights=state_hash(subject.model.state_dict()),
        clean=subject.clean,
        notes=() if sees else ("the model sees no edge",),
    )


@own_context()
def attack(
    model: nn.Module,
    data: Data | Served,
    budget: Budget,
    name: str | Attack = "auto",
    *,
    nodes: Any = "test",
    labels: Labels = "predicted",
    threat: Literal["white_box", "adaptive"] = "white_box",
    seed: int = 0,
    device: str | torch.device | None = None,
) -> PerturbedGraph:
    """The graph that one attack makes of a clean one; `.to_data()` hands it to PyG.

    Signs that the attack was misled are told in the log; `evaluate` reports them.

    Args:
        model: As of `evaluate`, as are all others but this one.
        data: The clean graph.
        budget: What the attack may spend.
        name: The attack.
        nodes: Nodes under attack.
        labels: Classes that the attacker goes by.
        threat: Form of the model that the attack differentiates.
        seed: Of all random choices.
        device: Where to run.

    Raises:
        RobustDiffusionError: As of `evaluate`.

    Examples:
        >>> from robust_diffusion import GCN, Budget, attack
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> graph = attack(GCN(8, 8, 7), data, Budget(2, 3), "random")
        >>> graph.to_data().num_nodes
        102
    """
    given = (model, data, budget, [name], nodes, labels, threat, seed, device)
    with _prepared(*given) as (attacker, subject, chosen):
        (run,) = _runs(subject, {"": _form(subject.model, threat)}, chosen, seed)
        return subject.returned(attacker(run).graph)


@contextmanager
def _prepared(
    model: nn.Module,
    data: Data | Served,
    budget: Budget,
    attacks: Any,
    nodes: Any,
    labels: str,
    threat: str,
    seed: int,
    device: str | torch.device | None,
    store: str | Path | None = None,
    progress: bool = False,
) -> Iterator[tuple[Attacker, Subject, dict[str, Attack]]]:
    """Who attacks, the checked model, in eval mode within the block, and the attacks by name."""
    chosen = attacks_of(attacks)
    grows = any(attack.kind == "injection" for attack in chosen.values())
    subject = subject_of(model, data, nodes, device, grows=grows)
    for key, value, kind in (("labels", labels, Labels), ("threat", threat, Threat)):
        check_value(key, value, kind)
    check_value("seed", seed, Seed)
    budget = budget_of(budget, subject, chosen)
    with subject.tried.ready(), TemporaryDirectory() as folder:
        kept = ArtifactStore(folder if store is None else store, option="store")
        knows = labels == "true"
        attacker = Attacker(subject, budget, seed, kept, knows, shows_progress=progress)
        yield attacker, subject, chosen


def _runs(
    subject: Subject, models: Mapping[str, nn.Module], attacks: Mapping[str, Attack], seed: int
) -> list[Run]:
    """Every attack on every model, by the name of the surrogate or ""."""
    runs = []
    for made_on, model in models.items():
        key = {
            "model": object_key(model),
            # Whatever a key cannot tell of a model shows in what it predicts.
            "logits": tensor_hash(subject.logits_of(model, subject.graph, seed)),
        }
        attacked = AttackedModel(model, state_hash(model.state_dict()))
        runs += [
            Run(
                label=f"{name}/{made_on}" if made_on else name,
                attack=attack,
                attacked=attacked,
                cache_key={"attack": object_key(attack), **key},
                made_on=made_on,
            )
            for name, attack in attacks.items()
        ]
    return runs


def _depends_on_edges(subject: Subject, graphs: Sequence[PerturbedGraph], seed: int) -> bool:
    """True of a model whose logits on some attacked graph change with its edges.

    A filter may drop every clean edge, and let those of an attack through.
    """
    clean = subject.graph.edge_index
    return any(
        not torch.equal(
            subject.logits(graph, seed), subject.logits(replace(graph, edge_index=clean), seed)
        )
        for graph in graphs
    )


def _form(model: nn.Module, threat: str) -> nn.Module:
    """The model as the attacker differentiates it."""
    return WhiteBox(gradient="adaptive" if threat == "adaptive" else None).seen(model)


def _controls(chosen: Mapping[str, Attack]) -> dict[str, Attack]:
    """Chance of each kind of attack, by name."""
    controls = {BASELINES[attack.kind].name: BASELINES[attack.kind] for attack in chosen.values()}
    for name in controls.keys() & chosen.keys():
        if object_key(chosen[name]) != object_key(controls[name]):
            raise ConfigError(
                f"attacks: {name} is the control, which is always run; give this attack another "
                "name, in a dictionary"
            )
    return controls

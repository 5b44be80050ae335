"""Task of an evaluation: a graph, its target nodes, and what models predict there."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary
from torch_geometric.data import Data

from robust_diffusion.attacks import Attack, Budget, PerturbedGraph, seeded
from robust_diffusion.attacks.base import clean_graph
from robust_diffusion.attacks.named import build_attack
from robust_diffusion.data.validate import Served, checked_graph, node_index
from robust_diffusion.errors import ConfigError
from robust_diffusion.models.checked import (
    TriedModel,
    check_dropped_edges,
    check_model,
    copy_of,
    device_of,
    dtype_of,
    has_own_layers,
    is_random,
    sorted_by,
    sorted_row,
)
from robust_diffusion.system.tensor_hashes import state_hash, tensor_hash

_T = TypeVar("_T")


def accuracy(predicted: Any, labels: Any) -> float:
    """Share of nodes that are classified right, in 0..1; of tensors or arrays."""
    return int((predicted == labels).sum()) / max(len(labels), 1)


def graph_hash(graph: Data, targets: Int[Tensor, " t"]) -> str:
    """A hash of features, edges in any order, classes and target nodes."""
    (edges,) = sorted_by(0, graph["edge_index"])
    return tensor_hash(graph["x"], edges, graph["y"], targets)


def writes_into_inputs(model: object) -> ConfigError:
    """Return the error of a model that would change the graph it is tested on."""
    return ConfigError(
        f"model: {type(model).__name__} writes into the features or edges that it is passed; let "
        "its forward work on a copy"
    )


@dataclass(frozen=True, eq=False)
class Task:
    """A clean graph and the nodes at which models are tested on it and on what is made of it."""

    graph: Data  # checked, on the CPU, true classes of the targets known
    targets: Int[Tensor, " t"]  # nodes under attack
    device: torch.device  # where models run
    _: KW_ONLY
    seed: int = 0  # of a model that samples, and of attacks
    poisons: bool = False  # models are trained on what is attacked
    _known: dict[Any, Any] = field(init=False, repr=False, default_factory=dict)
    _logits: Any = field(init=False, repr=False, default_factory=WeakIdKeyDictionary)

    @property
    def reach(self) -> Int[Tensor, " r"]:
        """Nodes at which a modification may change the graph: the targets; of a poisoning, all."""
        return torch.arange(self.graph.num_nodes) if self.poisons else self.targets

    def once(self, name: Hashable, model: nn.Module, measure: Callable[[], _T]) -> _T:
        """Return what is measured on a model, whose weights stay, measured at the first call."""
        key = name, id(model)
        if key not in self._known:
            self._known[key] = model, measure()  # the model lives on, and its id is no other's
        measured: _T = self._known[key][1]
        return measured

    def logits_of(self, model: nn.Module, graph: Data | PerturbedGraph) -> Float[Tensor, "t c"]:
        """Return the logits of the targets, on the CPU."""
        return self.all_logits(model, graph)[self.targets]

    def all_logits(self, model: nn.Module, graph: Data | PerturbedGraph) -> Float[Tensor, "m c"]:
        """Return the logits of all nodes, on the CPU, computed once while the graph is held."""
        by_model = self._logits.setdefault(graph, {})
        if id(model) not in by_model:
            by_model[id(model)] = model, self._compute(model, graph)
        logits: Tensor = by_model[id(model)][1]
        return logits

    def _compute(self, model: nn.Module, graph: Data | PerturbedGraph) -> Float[Tensor, "m c"]:
        inputs = self.placed(graph)
        versions = [tensor._version for tensor in inputs]
        with torch.no_grad(), seeded(self.seed):  # a model may sample
            logits: Tensor = model(*inputs)
        if versions != [tensor._version for tensor in inputs]:
            raise writes_into_inputs(model)
        return logits.cpu()

    def placed(
        self, graph: Data | PerturbedGraph
    ) -> tuple[Float[Tensor, "n f"], Int[Tensor, "2 e"]]:
        """Return the features and edges of a graph, on the device of the models."""
        assert graph.x is not None
        assert graph.edge_index is not None
        return graph.x.to(self.device), graph.edge_index.to(self.device)

    def told(self, model: nn.Module, *, knows_labels: bool) -> dict[str, Tensor]:
        """Return features, edges, and what else the attacker of a model knows of the graph.

        These are its classes, if it knows them. Who poisons a graph knows them at the train nodes,
        and takes the model's predictions for them elsewhere.
        """
        x, edge_index, y = (self.graph[key] for key in ("x", "edge_index", "y"))
        tensors: dict[str, Tensor] = {"x": x, "edge_index": edge_index}
        if not self.poisons:
            return tensors | ({"y": y} if knows_labels else {})
        train, predicted = self.graph["index_train"], self.all_logits(model, self.graph).argmax(1)
        known = torch.isin(self.reach, train) | (knows_labels & (y >= 0))
        return tensors | {"y": torch.where(known, y, predicted), "index_train": train}

    def accuracy(self, logits: Float[Tensor, "t c"]) -> float:
        """Return the share of the targets that are classified right, in 0..1."""
        return accuracy(logits.argmax(1), self.labels)

    @property
    def labels(self) -> Int[Tensor, " t"]:
        """True classes of the targets."""
        assert isinstance(self.graph.y, Tensor)
        return self.graph.y[self.targets]


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject(Task):
    """A model that was tried on a graph, and the nodes at which it is attacked."""

    tried: TriedModel  # the model as it was passed, or a copy on another device
    original: Data  # the graph as it was passed, with its masks
    grows: bool = True  # nodes may be added to the graph
    dataset: str = ""  # name of the datamodule's dataset

    @property
    def model(self) -> nn.Module:
        """The model."""
        return self.tried.model

    def logits(self, graph: Data | PerturbedGraph) -> Float[Tensor, "t c"]:
        """Return the model's logits of the targets, on the CPU."""
        return self.logits_of(self.model, graph)

    def accuracy_on(self, graph: Data | PerturbedGraph) -> float:
        """Return the model's accuracy at the targets of a graph, in 0..1."""
        return self.accuracy(self.logits(graph))

    @property
    def clean(self) -> Data:
        """The graph as the model sees it, with its targets and the tensors passed with it."""
        passed = self.original.to_dict().items()
        held = {k: v for k, v in passed if isinstance(v, Tensor) and v.layout == torch.strided}
        seen = {key: self.graph[key] for key in ("x", "edge_index", "y")}
        return Data(**{**held, **seen, "target_nodes": self.targets})

    @property
    def fingerprint(self) -> str:
        """A hash of features, edges, classes and target nodes."""
        return graph_hash(self.graph, self.targets)

    def returned(self, graph: PerturbedGraph) -> PerturbedGraph:
        """Return the attacked graph that users get, edges in the order of the clean graph."""
        row = sorted_row(clean_graph(self.graph)[1])
        (edges,) = sorted_by(row, graph.edge_index)
        return replace(graph, edge_index=edges, clean=self.original)


def subject_of(
    model: nn.Module,
    data: Data | Served,
    nodes: Any,
    device: str | torch.device | None,
    *,
    seed: int = 0,
    grows: bool = True,
) -> Subject:
    """Check a model, a graph and the nodes under attack; see `evaluate` for the arguments.

    `grows`: nodes may be added to the graph.
    """
    original, name = (data.graph, str(data.name)) if isinstance(data, Served) else (data, "")
    if not isinstance(original, Data):
        checked_graph(original, {})  # says what it is
    if isinstance(data, Served) and isinstance(nodes, str) and nodes == "test":
        nodes = data.target_nodes
    targets = node_index(original, nodes)
    graph = checked_graph(original, {"nodes": targets})
    if hasattr(model, "training_step"):
        # Late, since it imports Lightning, which is loaded already if there is such a model.
        from robust_diffusion.training import NodeClassification

        model = model.model if isinstance(model, NodeClassification) else model
    place = device_of(model) if device is None else _device(device)
    assert graph.x is not None
    # A copy, since the model may write to it.
    graph.x = graph.x.to(dtype_of(model, graph.x.dtype), copy=True)
    task = Task(graph, targets, place)
    tried = _try(model, task, "model", grows=grows)
    x, edge_index = task.placed(graph)
    check_dropped_edges(tried.model, x, original.edge_index.to(edge_index), edge_index)
    subject = Subject(
        *(graph, targets, place),
        seed=seed,
        tried=tried,
        original=original,
        grows=grows,
        dataset=name,
    )
    logits = tried.logits.cpu()
    subject.once("another pass", tried.model, lambda: logits)
    known = has_own_layers(tried.model) and not is_random(tried.model)
    if known and not tried.gives_probabilities:
        subject._logits[graph] = {id(tried.model): (tried.model, logits)}
    return subject


def attacks_of(attacks: Any) -> dict[str, Attack]:
    """Attacks by name, from a name, an attack, several of them, or a mapping."""
    several = isinstance(attacks, list | tuple | Mapping)
    items = (
        attacks.items()
        if isinstance(attacks, Mapping)
        else [(None, attack) for attack in (attacks if several else [attacks])]
    )
    by_name: dict[str, Attack] = {}
    for name, spec in items:
        attack = build_attack(spec) if isinstance(spec, str) else spec
        if not isinstance(attack, Attack):
            raise ConfigError(
                f"attacks: holds a {type(attack).__name__}; give names such as auto, or attacks "
                "such as TDGIA(num_steps=50)"
            )
        name = attack.name if name is None else str(name)
        if name in by_name:
            raise ConfigError(f"attacks: two are named {name}; give a dictionary with other names")
        by_name[name] = attack
    if not by_name:
        raise ConfigError("attacks: none is named; give one, such as auto")
    return by_name


def budget_of(budget: Any, task: Task, attacks: Mapping[str, Attack]) -> Budget:
    """The budget as far as the target nodes can take it, its feature limits resolved."""
    if not isinstance(budget, Budget):
        raise ConfigError(
            f"budget: is a {type(budget).__name__}; give a Budget(max_injected_nodes=..., "
            "max_edges_per_injected_node=...)"
        )
    for name, attack in attacks.items():
        _check_allows(budget, name, attack)
    assert task.graph.x is not None
    return budget.within(task.targets.numel()).resolve(task.graph.x)


def _check_allows(budget: Budget, name: str, attack: Attack) -> None:
    """Refuse a budget of which an attack can spend nothing."""
    injects = attack.kind == "injection"
    keys = ["max_injected_nodes", "max_edges_per_injected_node", "max_injected_edges"]
    if not injects:  # by edges or, if it can, by features
        keys = ["edge_ratio", "node_ratio"][: 1 + attack.changes_features]
    missing = [key for key in keys if getattr(budget, key) == 0]
    if missing and (injects or missing == keys):
        arguments = ", ".join(f"{key}=..." for key in missing)
        raise ConfigError(
            f"budget.{missing[0]}: expected more than 0 for attack={name}, got 0; use "
            f"Budget({arguments})"
        )


def surrogates_of(surrogates: Any, subject: Subject) -> dict[str, TriedModel]:
    """Surrogates by name, from a mapping or a list, whose names are those of their classes."""
    if isinstance(surrogates, nn.Module) or not isinstance(surrogates, Mapping | list | tuple):
        raise ConfigError(
            f"surrogates: is a {type(surrogates).__name__}; give a list of trained models"
        )
    if not isinstance(surrogates, Mapping):
        named: dict[str, Any] = {}
        for model in surrogates:
            of_class = type(model).__name__
            same = sum(name.split(" ")[0] == of_class for name in named)
            named[f"{of_class} {same + 1}" if same else of_class] = model
        surrogates = named
    weights = state_hash(subject.model.state_dict()) if list(subject.model.parameters()) else ""
    for name, model in surrogates.items():
        if isinstance(model, nn.Module) and state_hash(model.state_dict()) == weights:
            raise ConfigError(
                f"surrogates[{name}]: has the weights of the model itself, which is a white box; "
                "train another"
            )
    return {
        str(name): _try(model, subject, f"surrogates[{name}]", grows=subject.grows)
        for name, model in surrogates.items()
    }


def _try(model: Any, task: Task, name: str, *, grows: bool) -> TriedModel:
    """The model, or a copy of it if it is on another device, tried on the graph."""
    if isinstance(model, nn.Module) and device_of(model) != task.device:
        model = copy_of(model).to(task.device)
    classes = int(task.labels.max()) + 1
    return check_model(model, *task.placed(task.graph), classes, name=name, grows=grows)


def _device(device: str | torch.device) -> torch.device:
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device={device}: is not there ({reason}); cpu always is") from error

"""Costs of an attack: forward passes of the attacked model, and the harm that was met by then."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from robust_diffusion.attacks import Attack, Budget
from robust_diffusion.evaluation.subject import Task
from robust_diffusion.system.artifact import Artifact
from robust_diffusion.system.progress import Progress

if TYPE_CHECKING:
    from matplotlib.axes import Axes

log = logging.getLogger(__name__)

PASSES_PER_STEP = {"auto": 8, "auto_modification": 21}
"""Forward passes of attacks of many parts, for the time left; others take about one."""

Cache = Callable[[Mapping[str, Any], Callable[[], Artifact]], tuple[Artifact, bool]]

_Step = Sequence[float]
"""Forward passes and seconds until then, and the accuracy in 0..1; a list where JSON was read."""


class Effort:
    """Forward passes and wall time of an attack, and the lowest accuracy that it had met by then.

    Args:
        cache: Keeps the parts of an ensemble until the whole is there, so that a killed run goes
            on; as `ArtifactStore.get_or_compute` without the kind. `None` to keep none.
        key: Of the perturbed graph that all parts together make.

    Attributes:
        forwards: Forward passes of the attacked model, in any form of it; each draw counts.
        trace: A step for each graph that left less accuracy than all before it. It holds graphs
            that keep the budget's counts alone, not those between two graphs, of weighed edges; of
            a model that samples, one draw.
    """

    def __init__(self, cache: Cache | None = None, key: Mapping[str, Any] | None = None) -> None:
        self._cache, self._key, self._reused = cache, key or {}, 0
        self.forwards = 0
        self.trace: list[_Step] = []
        self.tell = Progress(shown=False)
        self.part = ""
        self._start = time.perf_counter()
        self._before = 0.0

    @property
    def seconds(self) -> float:
        """Wall time until now, and that of what was taken from an earlier run when it ran."""
        return self._before + time.perf_counter() - self._start

    @contextmanager
    def of(self, model: nn.Module, attack: Attack, budget: Budget, task: Task) -> Iterator[None]:
        """Within it, forward passes of the model and of copies made there are counted."""
        n, e = task.graph.num_nodes or 0, task.graph.num_edges
        grows = attack.kind == "injection"
        nodes = budget.max_injected_nodes if grows else 0
        edges = sum(budget.injected_degrees) if grows else budget.max_flipped_edges(e // 2)

        # A function and no method, which a copy of the model would copy with it.
        def note(
            _: nn.Module, given: tuple[Any, ...], named: dict[str, Any], logits: Tensor
        ) -> None:
            self.forwards += 1
            self.tell(1)
            if named or len(given) != 2:  # weighed edges, or names that are the model's own
                return
            x, edge_index = given
            if x.size(0) > n + nodes or abs(edge_index.size(1) - e) > 2 * edges:
                return
            of_targets = logits.detach()[task.targets.to(logits.device)].cpu()
            self.reach(task.accuracy(of_targets))

        handle = model.register_forward_hook(note, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def keep(self, name: str, compute: Callable[[], Artifact]) -> Artifact:
        """Return a part of this name, from the cache or computed; see `attacks.ensemble.Keep`."""

        def timed() -> Artifact:
            self.report_reuse()
            self.at(name)
            before = self.forwards, self.seconds, len(self.trace)
            made = compute()
            return Artifact(made.tensors, {"effort": self.since(*before), "found": made.metadata})

        key = {"part": name, **self._key}
        part, reused = self._cache(key, timed) if self._cache else (timed(), False)
        if reused:
            self._reused += 1
            self.add(**part.metadata["effort"])
        return Artifact(part.tensors, part.metadata["found"])

    def report_reuse(self) -> None:
        """Log how many parts the cache had since the last call."""
        if self._reused:
            log.info("%d parts: reusing cached results", self._reused)
            self._reused = 0

    def since(self, forwards: int = 0, seconds: float = 0.0, steps: int = 0) -> dict[str, Any]:
        """Return forward passes, seconds and steps of the trace after those counts, as JSON."""
        return {
            "forwards": self.forwards - forwards,
            "seconds": self.seconds - seconds,
            "trace": [(f - forwards, s - seconds, a) for f, s, a in self.trace[steps:]],
        }

    def add(self, forwards: int, seconds: float, trace: Sequence[_Step]) -> None:
        """Count what an earlier run did, as `since` gives it, as done now."""
        for f, s, accuracy in trace:
            self._reach((self.forwards + f, self.seconds + s, accuracy))
        self.forwards += forwards
        self._before += seconds
        self.tell(forwards, free=forwards)

    def reach(self, accuracy: float) -> None:
        """Note what a graph leaves of the accuracy, if no other one left less."""
        self._reach((self.forwards, self.seconds, accuracy))

    def _reach(self, step: _Step) -> None:
        if not self.trace or step[2] < self.trace[-1][2]:
            self.trace.append(step)
            self.at(self.part)

    def at(self, part: str) -> None:
        """Tell which part of the attack is going on, and the lowest accuracy of all until now."""
        self.part, lowest = part, f"accuracy {100 * self.trace[-1][2]:.2f} %" if self.trace else ""
        self.tell(note=", ".join(filter(None, (lowest, part))))


def expected_forwards(attack: Attack) -> int | None:
    """Forward passes that an attack takes, about, if its steps tell."""
    steps = getattr(attack, "num_steps", None)
    return round(PASSES_PER_STEP.get(attack.name, 1) * steps) if steps else None


def plot_traces(efforts: Mapping[str, Mapping[str, Any]], axes: "Axes") -> None:
    """Draw the lowest accuracy met by each attack against its forward passes.

    Args:
        efforts: By the attack's name, `forwards`, `seconds` and `trace`; see `Effort`.
        axes: Where to draw, by Matplotlib.
    """
    for name, of in efforts.items():
        forwards, _, reached = zip(*of["trace"], strict=True)
        x = [max(1, count) for count in (*forwards, of["forwards"])]  # on a logarithmic axis
        y = [100 * accuracy for accuracy in (*reached, reached[-1])]
        label = f"{name}, {of['seconds']:.0f} s" if of["seconds"] >= 1 else f"{name}, under 1 s"
        axes.step(x, y, where="post", label=label, marker="o", ms=4, markevery=[-1])
    axes.set(xscale="log", ylim=(0, 100), xlabel="forward passes", ylabel="accuracy in %")
    axes.legend(frameon=False, fontsize=8)

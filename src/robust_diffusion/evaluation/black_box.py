"""The threat models of an attacker who trains surrogates."""

from collections.abc import Callable, Mapping

from torch import nn

from robust_diffusion.checks import check_name, validated
from robust_diffusion.errors import ConfigError
from robust_diffusion.evaluation.threat import (
    AttackedModel,
    GivenLabels,
    Seeding,
    TrainedModel,
    TrainSurrogate,
    named_labels,
)
from robust_diffusion.training import Fit


@validated("threat")
class BlackBox:
    """The attacker knows neither the victim nor its defence, and attacks surrogates of its own.

    With several surrogates every attack runs on each; a run then tells the worst and the mean.

    Reference: section "Attack Setup", arXiv:2209.07754; GRB, arXiv:2111.04314.

    Args:
        surrogates: By name, each builds a surrogate from the numbers of features and classes.
        fit: Trains them.
        labels: The targets' classes as the attacker takes them: its surrogate's predictions, or
            the true ones.
        seeding: A surrogate's random state: `name`, derived from the cell's seed and the
            surrogate's name; or `cell`, the victim's own, by which a surrogate of the victim's
            architecture is the victim itself, weight for weight.

    Raises:
        ConfigError: No surrogate, or a name that is none.

    Examples:
        >>> from functools import partial
        >>> import pytorch_lightning as pl
        >>> from robust_diffusion import GCN, BlackBox, Fit
        >>> fit = Fit(partial(pl.Trainer, accelerator="cpu"), max_epochs=100)
        >>> BlackBox({"gcn": partial(GCN, hidden_channels=64)}, fit).name
        'black_box'
    """

    name = "black_box"

    def __init__(
        self,
        surrogates: Mapping[str, Callable[..., nn.Module]],
        fit: Fit,
        *,
        labels: GivenLabels = "predicted",
        seeding: Seeding = "name",
    ) -> None:
        if not surrogates:
            raise ConfigError("surrogate=[]: threat=black_box needs one, such as gcn")
        for surrogate in surrogates:
            check_name("surrogates", surrogate)
        self.labels = named_labels(labels)
        self._surrogates = surrogates
        self._fit = fit
        self._seeding = seeding

    def check(self, model: nn.Module) -> None:
        """Any victim will do; the attacker does not see it."""

    def attacked_models(
        self, victim: TrainedModel, train: TrainSurrogate
    ) -> dict[str, AttackedModel]:
        """Train the surrogates; the victim is not looked at."""
        trained = {
            name: train(name, build, self._fit, self._seeding)
            for name, build in self._surrogates.items()
        }
        return {name: AttackedModel(of.model, of.state) for name, of in trained.items()}


class Poisoning(BlackBox):
    """The attacker changes the graph before the victim is trained on it.

    The victim is retrained on each attacked graph, from the run's seed, and tested on it.
    Every node is attacked, so that any pair may be flipped, and `budget.edge_ratio` is a share of
    all edges. The attacker knows the classes of the train nodes, its surrogates' predictions
    elsewhere, and not the victim. Its surrogates are trained on the clean graph.

    Reference: Zügner and Günnemann 2019, arXiv:1902.08412.

    Arguments as `BlackBox`.

    Examples:
        >>> from functools import partial
        >>> import pytorch_lightning as pl
        >>> from robust_diffusion import GCN, Fit, Poisoning
        >>> fit = Fit(partial(pl.Trainer, accelerator="cpu"), max_epochs=100)
        >>> Poisoning({"gcn": partial(GCN, hidden_channels=64)}, fit).name
        'poisoning'
    """

    name = "poisoning"

"""Lightning's W&B logger for runs."""

from collections.abc import Mapping
from typing import Any

from pytorch_lightning.loggers import WandbLogger
from pytorch_lightning.utilities import rank_zero_only

from robust_diffusion.experiment.wandb_log import open_run


class BestEpochLogger(WandbLogger):
    """W&B logger whose summary holds the values of the best epoch, the one whose weights are saved.

    For the `options` see `open_run`.
    """

    # Passed as they are, since `open_run` names and checks them.
    def __init__(self, **options: Any) -> None:
        super().__init__(experiment=open_run(**options), log_model=False)
        self._best: dict[str, float] = {}

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log the metrics of a step; within an epoch, validation comes first."""
        super().log_metrics(metrics, step)
        if metrics.get("val_accuracy", -1.0) > self._best.get("val_accuracy", -1.0):
            self._best = dict(metrics)
        elif metrics.get("epoch", -1) == self._best.get("epoch"):
            self._best |= metrics
        else:
            return
        self.experiment.summary.update(self._best)

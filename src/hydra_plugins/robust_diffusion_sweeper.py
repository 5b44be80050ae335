"""The sweeper of `hydra/sweeper=grid`; Hydra looks for plugins in this package alone."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from robust_diffusion.sweeper import covering, plan


class GridSweeper(Sweeper):
    """Runs one product of options or several; see `robust_diffusion.sweeper.plan`.

    Args:
        params: Per option its values, of every grid.
        grids: Further options, one product each.
        max_cells: Most cells of a thinned sweep; `None` runs all.
        stand_ins: Dataset -> another one, which runs where that one does if it is typed.
    """

    def __init__(
        self,
        params: Mapping[str, Any],
        grids: Sequence[Mapping[str, Any]],
        max_cells: int | None = None,
        stand_ins: Mapping[str, str] | None = None,
    ) -> None:
        self.params = params
        self.grids = grids
        self.max_cells = max_cells
        self.stand_ins = stand_ins
        self.hydra_context: HydraContext | None = None
        self.config: DictConfig | None = None
        self.launcher: Launcher | None = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what Hydra hands to a sweeper, and open the launcher."""
        self.hydra_context = hydra_context
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Launch every cell.

        Args:
            arguments: Overrides of the command line.
        """
        assert self.config is not None
        assert self.launcher is not None
        cells = plan(
            params=self.params,
            grids=self.grids,
            typed=arguments,
            max_cells=self.max_cells,
            stand_ins=self.stand_ins,
        )
        directory = Path(self.config.hydra.sweep.dir)
        directory.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, directory / "multirun.yaml")
        # A value that does not compose stops the sweep before its first cell. One cell of each
        # value is enough to tell, and all of them would take minutes.
        self.validate_batch_is_legal(covering(cells))
        results = self.launcher.launch(cells, initial_job_idx=0) if cells else []
        for result in results:
            # Raises what the cell raised.
            _ = result.return_value
        return [results]

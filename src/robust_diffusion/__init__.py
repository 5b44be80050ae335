"""Robustness of graph neural diffusion to topology perturbations (arXiv:2209.07754).

Names are imported when they are first used, so that `import robust_diffusion` costs nothing.
"""

import warnings
from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes, typed_imports

# PyTorch Geometric's pooling layers call it when they are imported.
warnings.filterwarnings("ignore", "`torch.jit.script`")

if TYPE_CHECKING:
    from robust_diffusion.attacks import Attack as Attack
    from robust_diffusion.attacks import Budget as Budget
    from robust_diffusion.certificates import certify as certify
    from robust_diffusion.data.inventory import open_dataset as open_dataset
    from robust_diffusion.evaluation import RobustnessReport as RobustnessReport
    from robust_diffusion.evaluation import attack as attack
    from robust_diffusion.evaluation import evaluate as evaluate
    from robust_diffusion.evaluation import load_model as load_model
    from robust_diffusion.experiment.run import run_experiment as run_experiment
    from robust_diffusion.flows import Flow as Flow
    from robust_diffusion.integrators.solver import Solver as Solver
    from robust_diffusion.models import GraphPDE as GraphPDE
    from robust_diffusion.records import read_records as read_records
    from robust_diffusion.results.frame import frame as frame
    from robust_diffusion.training.fit_model import fit as fit

__version__ = "0.2.0"

_HOMES = typed_imports(__name__)

__all__ = ["__version__", *_HOMES]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a type checker would accept any attribute
    __getattr__ = lazy_attributes(__name__)

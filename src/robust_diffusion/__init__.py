"""Robustness of graph neural diffusion to topology perturbations (arXiv:2209.07754).

Names are imported when they are first used, so that `import robust_diffusion` costs nothing.
"""

import warnings
from typing import TYPE_CHECKING

from robust_diffusion.system.lazy import lazy_attributes, typed_imports

# PyTorch Geometric's pooling layers call it when they are imported.
warnings.filterwarnings("ignore", "`torch.jit.script`")

if TYPE_CHECKING:
    # isort: off
    from robust_diffusion.attacks import (
        AGIA as AGIA,
        DICE as DICE,
        FGSM as FGSM,
        GRBCD as GRBCD,
        LRBCD as LRBCD,
        PGD as PGD,
        PRBCD as PRBCD,
        SPEIT as SPEIT,
        TDGIA as TDGIA,
        Attack as Attack,
        AutoInjection as AutoInjection,
        AutoModification as AutoModification,
        Budget as Budget,
        FlipAdversary as FlipAdversary,
        GivenGraph as GivenGraph,
        GradientInjection as GradientInjection,
        InjectionAdversary as InjectionAdversary,
        MetaGIA as MetaGIA,
        MetaGRBCD as MetaGRBCD,
        Metattack as Metattack,
        PerturbedGraph as PerturbedGraph,
        PGDModification as PGDModification,
        RandomFlip as RandomFlip,
        RandomInjection as RandomInjection,
        SpentBudget as SpentBudget,
    )
    from robust_diffusion.attacks.named import (
        attack_names as attack_names,
        build_attack as build_attack,
    )
    from robust_diffusion.experiment.run import run_experiment as run_experiment
    from robust_diffusion.certificates import (
        BiSmoothing as BiSmoothing,
        CertificateReport as CertificateReport,
        SmoothedModel as SmoothedModel,
        SparseSmoothing as SparseSmoothing,
        certify as certify,
    )
    from robust_diffusion.data import GraphDataModule as GraphDataModule
    from robust_diffusion.data.inventory import open_dataset as open_dataset
    from robust_diffusion.evaluation.single_target import attack_each as attack_each
    from robust_diffusion.evaluation.single_target import right_by_edges as right_by_edges
    from robust_diffusion.evaluation.evaluate_model import attack as attack, evaluate as evaluate
    from robust_diffusion.records.records import (
        latest_by_run as latest_by_run,
        read_records as read_records,
    )
    from robust_diffusion.evaluation.report import (
        AttackReport as AttackReport,
        RobustnessReport as RobustnessReport,
    )
    from robust_diffusion.evaluation.threat import BlackBox as BlackBox
    from robust_diffusion.evaluation.threat import Poisoning as Poisoning
    from robust_diffusion.evaluation.threat import WhiteBox as WhiteBox
    from robust_diffusion.evaluation.zoo import unit_test as unit_test
    from robust_diffusion.evaluation.zoo import load_model as load_model
    from robust_diffusion.flows import (
        ACMP as ACMP,
        GREAD as GREAD,
        Beltrami as Beltrami,
        Blend as Blend,
        Flow as Flow,
        Dragon as Dragon,
        Frond as Frond,
        Grand as Grand,
        GrandPP as GrandPP,
        GraphCON as GraphCON,
        Hang as Hang,
        HangQuad as HangQuad,
        Heat as Heat,
        HeatPlus as HeatPlus,
        Learned as Learned,
        MeanCurvature as MeanCurvature,
        PLaplacian as PLaplacian,
        UniformModulation as UniformModulation,
    )
    from robust_diffusion.models import (
        APPNP as APPNP,
        GAT as GAT,
        GCN as GCN,
        GCNSVD as GCNSVD,
        GIN as GIN,
        GPRGNN as GPRGNN,
        MLP as MLP,
        RUNG as RUNG,
        BeltramiGuard as BeltramiGuard,
        ElasticGNN as ElasticGNN,
        GCNJaccard as GCNJaccard,
        GNNGuard as GNNGuard,
        GraphPDE as GraphPDE,
        GraphSAGE as GraphSAGE,
        GRBModel as GRBModel,
        Guard as Guard,
        RawFeatures as RawFeatures,
        Rewiring as Rewiring,
        RobustGCN as RobustGCN,
        SoftMedianGDC as SoftMedianGDC,
    )
    from robust_diffusion.results.frame import frame as frame
    from robust_diffusion.integrators.solver import Solver as Solver
    from robust_diffusion.operators import Graph as Graph
    from robust_diffusion.training import (
        Fit as Fit,
        FitResult as FitResult,
        NodeClassification as NodeClassification,
    )
    from robust_diffusion.training.fit_model import fit as fit
    # isort: on

__version__ = "0.2.0"

_HOMES = typed_imports(__name__)

__all__ = ["__version__", *_HOMES]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # a type checker would accept any attribute
    __getattr__ = lazy_attributes(__name__)

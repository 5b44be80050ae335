"""Training of one model on one graph, in a single call."""

from contextlib import suppress
from functools import partial
from pathlib import Path

import pytorch_lightning as pl
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch_geometric.data import Data

from robust_diffusion.data import GraphDataModule
from robust_diffusion.errors import ConfigError, DataError
from robust_diffusion.models.modules import device_of, dtype_of, own_context
from robust_diffusion.models.victim import Victim, copies
from robust_diffusion.training.fit import Fit, FitResult
from robust_diffusion.training.module import Adversary


@own_context()
def fit(
    model: nn.Module,
    data: Data | GraphDataModule,
    *,
    max_epochs: int = 5000,
    patience: int = 500,
    learning_rate: float = 0.01,
    weight_decay: float = 0.0,
    accelerator: str = "auto",
    adversary: Adversary | None = None,
    directory: str | Path | None = None,
    progress: bool = True,
    transductive: bool = False,
) -> FitResult:
    """Train a model on the training nodes, with early stopping on the validation nodes; see `Fit`.

    Training is inductive, as in GRB: the model sees the subgraph of the training nodes, and no
    validation or test node. On a citation graph, its accuracy is a few points lower than with the
    usual transductive loop, in which the model sees the whole graph but only the training labels.

    Call `torch.manual_seed` before you build the model to make the training reproducible.

    Args:
        model: Any `nn.Module` of (x, edge_index), trained in place; it ends with its best weights.
        data: A `Data` with a split (see `GraphDataModule.from_data`), or a datamodule.
        max_epochs: Most epochs, at least 1.
        patience: Epochs without a lower validation loss after which training stops, at least 1.
        learning_rate: Adam's learning rate, above 0.
        weight_decay: Adam's weight decay, at least 0.
        accelerator: Accelerator of Lightning's trainer: auto, cpu or gpu.
        adversary: Adversarial training, such as `InjectionAdversary`; `None` for none.
        directory: Folder for one checkpoint of the best weights; other files in it stay. `None`
            saves none.
        progress: Show a bar on a terminal.
        transductive: Show the model the whole graph in training, without the labels of validation
            and test nodes. Only for a `Data`; a datamodule has its own setting.

    Raises:
        ConfigError: A number is out of range, the model does not fit the graph, or the folder
            cannot be written.
        DataError: The graph has no split, or is not a graph that a model can be trained on.
        TrainingError: The loss is not finite.

    Examples:
        >>> from robust_diffusion import fit
        >>> from robust_diffusion.models import MLP
        >>> from robust_diffusion.data.sources import citation_like_graph
        >>> data = citation_like_graph(num_nodes=100, num_edges=200, num_features=8)
        >>> model = MLP(8, 8, out_channels=7)
        >>> result = fit(model, data, max_epochs=2, accelerator="cpu", progress=False)
        >>> 0 <= result.val_accuracy <= 1
        True
    """
    if not isinstance(data, GraphDataModule):
        data = GraphDataModule.from_data(data, transductive=transductive)
    elif transductive and not data.transductive:
        raise ConfigError(
            "transductive=True: the datamodule is inductive; build it with transductive=True"
        )
    _check(model, data)
    trainer = partial(
        pl.Trainer,
        accelerator=accelerator,
        devices=1,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
        enable_model_summary=False,
    )
    train = Fit(
        trainer,
        max_epochs=max_epochs,
        patience=patience,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        progress_bar=progress,
        adversary=adversary,
        key="fit",
    )
    return train(model, data, directory=Path(directory) if directory else None)


def _check(model: nn.Module, datamodule: GraphDataModule) -> None:
    """Try the model on the validation view, and check its number of classes."""
    view, classes = datamodule.view("val"), datamodule.num_classes
    if classes < 2:
        raise DataError("data.y: expected two classes or more, got 1; there is nothing to learn")
    assert view.x is not None
    assert view.edge_index is not None
    device, dtype = device_of(model), dtype_of(model, view.x.dtype)
    x, edge_index = view.x.to(device, dtype), view.edge_index.to(device)
    if isinstance(model, nn.Module) and any(map(is_lazy, model.parameters())):
        with torch.no_grad(), suppress(Exception):  # an error is reported by the check below
            model.eval()(
                *copies(x, edge_index)
            )  # in train mode, norms would count validation nodes
    victim = Victim.probe(model, x, edge_index, classes, grows=False)
    told = victim.clean_logits.size(1)
    if told != classes:
        raise ConfigError(
            f"model: {type(model).__name__} tells {told} classes apart, and the labels {classes}; "
            f"build it with {classes}"
        )

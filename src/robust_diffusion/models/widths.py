"""Layer widths from the two keys that every model takes."""

from collections.abc import Sequence

from robust_diffusion.checks import check_whole
from robust_diffusion.errors import ConfigError


def layer_widths(
    in_channels: int, hidden_channels: int | Sequence[int], out_channels: int, num_layers: int
) -> list[int]:
    """Widths before, between and after `num_layers` layers; `hidden_channels` is one or all.

    Raises:
        ConfigError: No layer, a width below 1, or a list of the wrong length.
    """
    check_whole("model.num_layers", num_layers, at_least=1)
    if isinstance(hidden_channels, Sequence) and not isinstance(hidden_channels, str):
        hidden = list(hidden_channels)
    else:
        check_whole("model.hidden_channels", hidden_channels, at_least=1)
        hidden = [hidden_channels] * (num_layers - 1)
    if len(hidden) != num_layers - 1:
        raise ConfigError(
            f"model.hidden_channels={hidden}: {num_layers} layers need {num_layers - 1} widths, "
            "or one number for all"
        )
    for width in hidden:
        check_whole("model.hidden_channels", width, at_least=1)
    return [in_channels, *hidden, out_channels]

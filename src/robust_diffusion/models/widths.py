"""Layer widths from the two keys that every model takes."""

from collections.abc import Sequence

from robust_diffusion.errors import ConfigError


def layer_widths(
    in_channels: int, hidden_channels: int | Sequence[int], out_channels: int, num_layers: int
) -> list[int]:
    """Widths before, between and after `num_layers` layers; `hidden_channels` is one or all.

    Raises:
        ConfigError: A list of the wrong length.
    """
    if isinstance(hidden_channels, Sequence):
        hidden = list(hidden_channels)
    else:
        hidden = [hidden_channels] * (num_layers - 1)
    if len(hidden) != num_layers - 1:
        raise ConfigError(
            f"model.hidden_channels={hidden}: {num_layers} layers need {num_layers - 1} widths, "
            "or one number for all"
        )
    return [in_channels, *hidden, out_channels]

"""Low precision for the high resolutions only, where it saves time and harms little."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from gan.networks.interface import at_least

T = TypeVar("T")


def run(layers: Callable[..., T], x: Tensor, *others: Tensor | None, low: bool) -> T:
    """Run layers in the precision of their resolution. Without autocast it only calls them.

    Args:
        layers: what to call.
        x: first argument, which takes that precision.
        others: further arguments, as they are.
        low: follow the autocast around it, or else turn it off and run in fp32.

    Returns:
        What `layers` returns.
    """
    device = x.device.type
    if not (torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)):
        return layers(x, *others)
    if low:
        return layers(x.to(torch.get_autocast_dtype(device)), *others)
    with torch.autocast(device, enabled=False):
        return layers(x.float(), *others)


def split(resolutions: int, low_precision: int | None, least: int = 0) -> int:
    """Number of resolutions that stay in fp32, the lowest ones.

    Args:
        resolutions: of the network.
        low_precision: how many of them, the highest, follow autocast; None, or more than there
            are: all.
        least: how many stay in fp32 at least, unless all follow by None.

    Returns:
        0 to resolutions - 1.

    Raises:
        GanError: a `low_precision` below 1.
    """
    if low_precision is None:
        return 0
    at_least(1, low_precision=low_precision)
    return max(least, resolutions - low_precision)

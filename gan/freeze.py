"""Holding a network still while another one trains."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Copies = list[Tensor]


class Buffers:
    """A network's buffers, such as batch norm's statistics, to be copied and put back.

    Where they are is looked up once: for a small network that takes longer than its forward.
    """

    def __init__(self, network: nn.Module) -> None:
        """Find the buffers.

        Args:
            network: raw network.
        """
        self._places = [
            (module._buffers, name)
            for module in network.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]

    def now(self) -> Copies:
        """The buffers themselves, in a fixed order."""
        return [owner[name] for owner, name in self._places]  # type: ignore[misc]

    def copy(self) -> Copies:
        """Copies of them, in that order."""
        return [buffer.detach().clone() for buffer in self.now()]

    @torch.no_grad()
    def restore(self, copies: Copies) -> None:
        """Put copies back, in place.

        Args:
            copies: what `copy` gave.
        """
        if copies:
            torch._foreach_copy_(self.now(), copies)


class frozen:
    """Hold a network still while the other one trains, and put it back, also after an error.

    Without it the generator's backward fills the discriminator's gradients, which Accelerate
    does not clear between accumulation steps, and each phase moves the other network's
    batch-norm statistics and spectral-norm vectors.

    Inside, no parameter requires a gradient, though gradients still flow through the network to
    its input. At the end every parameter's flag and every buffer is as before. One object may be
    entered again and again, but not inside itself.
    """

    def __init__(self, network: nn.Module) -> None:
        """Look at a network; it is not held yet.

        Args:
            network: raw (unwrapped) network.
        """
        self._network, self._buffers = network, Buffers(network)
        self._parameters = list(network.parameters())
        self._trained: list[nn.Parameter] = []
        self._before: Copies = []

    def __enter__(self) -> nn.Module:
        """Hold it, and give it."""
        self._trained = [p for p in self._parameters if p.requires_grad]
        self._before = self._buffers.copy()
        for parameter in self._trained:
            parameter.requires_grad_(False)
        return self._network

    def __exit__(self, *error: object) -> None:
        """Let it go."""
        for parameter in self._trained:
            parameter.requires_grad_(True)
        self._buffers.restore(self._before)

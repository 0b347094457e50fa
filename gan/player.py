"""A player: one network with its optimizer, its LR scheduler and its gradient scaler.

Accelerate keeps one scaler, one accumulation counter and one idea of a skipped step for everything
that was prepared. With two networks that is silently wrong, so a `Player` owns those three for its
network. It knows nothing of GANs: two make a GAN, one makes a text classifier.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NoReturn, overload

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gan.accelerators import check_accelerator
from gan.errors import ConfigError, DivergenceError
from gan.freeze import Buffers, Copies, frozen

_LEAST_SCALE = 2.0**-14
"""Thirty halvings below where torch starts; a gradient that still overflows is not finite."""


class Player:
    """One network, its optimizer, its scheduler and, under fp16, its own gradient scaler.

    All of them come from one `accelerator.prepare(...)` call. An update is a window of
    micro-batches, each inside `micro_batch`, then `step`:

        for i, batch in enumerate(batches):
            with player.micro_batch(i, of=len(batches)):
                accelerator.backward(loss(player.model(batch)))
        player.step()

    The scheduler moves once for each successful update, whatever the number of processes.

    Attributes:
        model: the prepared network; what is trained goes through it, so that gradients are
            averaged over the processes.
        raw: the same network without wrappers, for everything else.
        frozen: holds `raw` still, while the other network trains: `with player.frozen: ...`.
        updates: successful updates.
        skipped: updates that fp16 skipped because a gradient overflowed.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        optimizer: Any,
        scheduler: Any = None,
        *,
        name: str = "network",
        clip_norm: float | None = None,
    ) -> None:
        """Bind what was prepared together.

        Args:
            accelerator: the Accelerator that prepared them.
            model: the prepared network.
            optimizer: the prepared optimizer of its parameters.
            scheduler: the prepared LR scheduler of that optimizer, or None.
            name: the network's role, for messages.
            clip_norm: largest norm of the (unscaled) gradient; None: no limit.

        Raises:
            ConfigError: the pieces do not belong together, were not prepared, or run under
                something that cannot train two networks.
        """
        check_accelerator(accelerator)
        self.accelerator, self.model, self.name = accelerator, model, name
        self.clip_norm = clip_norm
        self.raw: nn.Module = accelerator.unwrap_model(model, keep_torch_compile=False)
        self.optimizer: torch.optim.Optimizer = getattr(optimizer, "optimizer", optimizer)
        self.scheduler: Any = getattr(scheduler, "scheduler", scheduler)
        # Shared, one network's overflow would rescale the other's gradients.
        self.scaler = copy.deepcopy(accelerator.scaler)
        self.updates = 0
        self.skipped = 0
        self.frozen = frozen(self.raw)
        self._buffers, self._start, self._mean = Buffers(self.raw), Copies(), Copies()
        self._is_ahead = False
        self._all = list(self.raw.parameters())
        self._trained = [p for group in self.optimizer.param_groups for p in group["params"]]
        self._wants_all = False
        self._check()
        if isinstance(ddp := _uncompiled(model), DistributedDataParallel):
            self._wants_all = not ddp.find_unused_parameters
            # `step` averages the buffers; DDP would overwrite them between two forwards, which
            # breaks their one backward where there is batch norm.
            ddp.broadcast_buffers = False
            # A gradient through a penalty may lie transposed in memory; where one of its sizes
            # is 1, which is where this is said, that costs nothing.
            warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")

    def _check(self) -> None:
        accelerator, name = self.accelerator, self.name
        own = {id(parameter) for parameter in self._all}
        if not all(id(parameter) in own for parameter in self._trained):
            raise ConfigError(
                f"{name}: its optimizer holds parameters of another network; "
                "give every network an optimizer of its own"
            )
        if self.scheduler is not None:
            scheduled: Any = getattr(self.scheduler, "optimizer", None)
            if getattr(scheduled, "optimizer", scheduled) is not self.optimizer:
                raise ConfigError(f"{name}: its scheduler belongs to another optimizer")
            # One built on a prepared optimizer would warn that the wrapper never steps.
            scheduled._opt_called = True
        inner = _uncompiled(self.model)
        if accelerator.num_processes > 1 and not isinstance(inner, DistributedDataParallel):
            raise ConfigError(
                f"{name}: with {accelerator.num_processes} processes the network must be the one "
                "that accelerator.prepare returned, or its gradients are not averaged"
            )
        if accelerator.native_amp and not hasattr(self.raw, "_original_forward"):
            raise ConfigError(
                f"{name}: under {accelerator.mixed_precision} the network must be the one that "
                "accelerator.prepare returned, or it silently runs in fp32"
            )
        if getattr(inner, "static_graph", False):
            raise ConfigError(
                f"{name}: DDP's static_graph gives wrong gradients with penalties and alternating "
                "networks; leave it off"
            )

    @property
    def lr(self) -> float:
        """Learning rate of the first parameter group."""
        return float(self.optimizer.param_groups[0]["lr"])

    @contextmanager
    def micro_batch(self, index: int, of: int = 1) -> Iterator[None]:
        """Forward and backward of one micro-batch.

        Inside, `accelerator.backward(loss)` divides by the number of micro-batches, uses this
        player's scaler, and averages gradients over the processes at the last one only.

        Micro-batches are like processes: each starts with the buffers that the first one started
        with, and `step` leaves their mean. So batch norm's running statistics move, and spectral
        norm iterates, as often as in one whole batch. An error leaves the network as it was.

        Args:
            index: which micro-batch of the window, from 0.
            of: how many the window has.
        """
        last = index == of - 1
        settings = {
            "sync_gradients": last,
            "gradient_accumulation_steps": of,
            "scaler": self.scaler,
        }
        if index == 0:
            if not self._is_ahead:
                self._start = self._buffers.copy()
            self._is_ahead, self._mean = False, []
        else:
            self._buffers.restore(self._start)
        with _changed(self.accelerator, settings):
            try:
                with nullcontext() if last else self.accelerator.no_sync(self.model):
                    yield
            except BaseException:
                self._clear()  # half a window must not leak into the next one
                self._buffers.restore(self._start)
                raise
        if of > 1:
            self._add_to_mean(self._buffers.copy(), index)

    def ahead(self, *inputs: Tensor) -> Tensor:
        """The forward of a window's only micro-batch, before that is entered.

        Args:
            inputs: what the network takes.

        Returns:
            What it returns, with its graph; the backward belongs inside `micro_batch`.
        """
        self._start, self._is_ahead = self._buffers.copy(), True
        output: Tensor = self.model(*inputs)
        return output

    def _add_to_mean(self, buffers: Copies, index: int) -> None:
        for i, mean in enumerate(self._mean):
            if mean.is_floating_point():
                buffers[i] = torch.lerp(mean, buffers[i], 1 / (index + 1))
        self._mean = buffers

    def _clear(self) -> None:
        for parameter in self._all:
            parameter.grad = None

    @overload
    def step(self) -> Tensor: ...

    @overload
    def step(self, measure: bool) -> Tensor | None: ...

    def step(self, measure: bool = True) -> Tensor | None:
        """Unscale, clip, update, move the scheduler if the update was made, clear the gradient.

        Works on the optimizer itself: Accelerate's wrapper steps the shared scaler, and takes a
        fused optimizer's skipped step for a real one.

        Args:
            measure: whether to measure the norm of the gradient. With `clip_norm` it is measured
                anyway.

        Returns:
            Norm of the gradient before clipping, a scalar tensor on the network's device; 0 where
            fp16 skipped the update; None where it was not measured.

        Raises:
            ConfigError: no parameter has a gradient; or some have none, where DDP was not told to
                expect that.
            DivergenceError: fp16 has skipped so many updates in a row that it is no overflow.
        """
        gradients = [p.grad for p in self._trained if p.grad is not None]
        if not gradients:
            raise ConfigError(
                f"{self.name}: no parameter has a gradient; does the loss depend on it?"
            )
        if self._wants_all and any(p.requires_grad and p.grad is None for p in self._all):
            self._refuse_unused()
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        measured = measure or self.clip_norm is not None
        norm = nn.utils.get_total_norm(gradients) if measured else None
        if self.clip_norm is not None and norm is not None:
            nn.utils.clip_grads_with_norm_(self._trained, self.clip_norm, norm)
        updated = self._update()
        self._clear()
        if updated:
            self.updates += 1
            if self.scheduler is not None:
                self.scheduler.step()
        else:
            self.skipped += 1
            norm = None if norm is None else torch.zeros_like(norm)
            self._mean = self._start  # a forward that overflowed may have spoilt the statistics
        self._average_buffers()
        return norm

    def _refuse_unused(self) -> NoReturn:
        named = self.raw.named_parameters()
        unused = [name for name, p in named if p.requires_grad and p.grad is None]
        self._clear()  # nothing was averaged yet
        raise ConfigError(
            f"{self.name}: with {self.accelerator.num_processes} processes every parameter must "
            f"take part in every update, but the loss does not depend on {', '.join(unused)}; use "
            "them, or tell DDP of it, which costs a walk through the graph each forward: "
            "gan train --find_unused_parameters, or, for an Accelerator of your own, "
            "kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)]"
        )

    def _update(self) -> bool:
        if self.scaler is None:
            self.optimizer.step()
            return True
        before = self.scaler.get_scale()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        scale = self.scaler.get_scale()
        if scale < _LEAST_SCALE:
            self._clear()
            raise DivergenceError(
                f"update {self.updates + self.skipped + 1}: the gradient of the {self.name} is not "
                f"finite, even with a loss scale of {scale:.0e}"
            )
        # Every kind of optimizer skips by backing the scale off; a fused one says nothing else.
        return bool(scale >= before)

    @torch.no_grad()
    def _average_buffers(self) -> None:
        """Leave the mean of what the micro-batches and the processes made of the buffers."""
        self._buffers.restore(self._mean)
        self._mean = []
        if self.accelerator.num_processes == 1:
            return
        buffers = [b for b in self._buffers.now() if b.is_floating_point()]
        if buffers:
            flat = torch.cat([b.reshape(-1).double() for b in buffers])
            flat = self.accelerator.reduce(flat, "mean")
            for buffer, part in zip(buffers, flat.split([b.numel() for b in buffers]), strict=True):
                buffer.copy_(part.view_as(buffer))

    @property
    def pure(self) -> bool:
        """Whether the network says of itself that each output depends on its input alone."""
        return bool(getattr(self.raw, "pure", False))

    @property
    def eager(self) -> bool:
        """Whether the network is not compiled."""
        return _uncompiled(self.model) is self.model

    @property
    def twice_differentiable(self) -> bool:
        """Whether a penalty may go through `model` itself; else it needs `full_precision`."""
        return self.eager and not self.accelerator.native_amp

    def exactly(self, *inputs: Tensor) -> Tensor:
        """The prepared network outside autocast, for a forward that penalties share.

        Args:
            inputs: what the network takes.

        Returns:
            What it returns, in the precision of its weights.
        """
        if not self.accelerator.native_amp:
            return self.model(*inputs)  # type: ignore[no-any-return]
        plain = {"forward": self.raw._original_forward}  # Accelerate's other one would autocast
        with _changed(self.raw, plain), torch.autocast(self.accelerator.device.type, enabled=False):
            return self.model(*inputs)  # type: ignore[no-any-return]

    def full_precision(self, *inputs: Tensor) -> Tensor:
        """The raw network, eager and outside autocast, for penalties.

        A second derivative through bf16 is wrong by a third of a percent, and through a compiled
        network it does not exist.

        Args:
            inputs: what the network takes.

        Returns:
            What it returns, in the precision of its weights.
        """
        forward = getattr(self.raw, "_original_forward", self.raw.forward)
        with torch.autocast(self.accelerator.device.type, enabled=False):
            return forward(*inputs)  # type: ignore[no-any-return]

    def check_finite(self, step: int) -> None:
        """Look at every weight.

        Args:
            step: for the message.

        Raises:
            DivergenceError: a weight is not finite.
        """
        finite = torch.stack([p.detach().isfinite().all() for p in self.raw.parameters()]).all()
        if not finite.item():
            raise DivergenceError(f"step {step}: a weight of the {self.name} is not finite")

    def state_dict(self) -> dict[str, Any]:
        """Everything that training changes, except the weights (see `raw.state_dict`)."""
        return {
            "optimizer": self.optimizer.state_dict(),
            "scheduler": None if self.scheduler is None else self.scheduler.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "updates": self.updates,
            "skipped": self.skipped,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back what `state_dict` gave.

        Args:
            state: a `state_dict` of a player of the same shape.
        """
        self.optimizer.load_state_dict(state["optimizer"])
        if self.scheduler is not None and state["scheduler"] is not None:
            self.scheduler.load_state_dict(state["scheduler"])
        if self.scaler is not None and state["scaler"]:
            self.scaler.load_state_dict(state["scaler"])
        self.updates, self.skipped = state["updates"], state["skipped"]


def _uncompiled(model: nn.Module) -> nn.Module:
    return getattr(model, "_orig_mod", model)


@contextmanager
def _changed(target: object, values: dict[str, Any]) -> Iterator[None]:
    """Give attributes other values for a while, also where an error ends it."""
    before = {name: getattr(target, name) for name in values}
    try:
        for name, value in values.items():
            setattr(target, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)

"""When a run must stop: numbers that are not finite, and signals, with all processes agreeing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from gan.errors import DivergenceError
from gan.penalties import GENERATOR_PENALTIES
from gan.run import Run


@dataclass(frozen=True)
class _Verdict:
    step: int
    tags: list[str]
    values: Tensor
    flags: Tensor


class Guard:
    """Looks at every step's scalars without making the host wait for an accelerator.

    On a CPU the answer is read at once. On an accelerator it is read during the next step, when
    it is there already; the error still names the step at which it happened.
    """

    def __init__(self, run: Run) -> None:
        """Watch a run.

        Args:
            run: the run.
        """
        self._run = run
        self._lag = run.accelerator.device.type != "cpu"
        self._pending: _Verdict | None = None

    def after_step(self, scalars: Mapping[str, Tensor], stop: int) -> int:
        """Check one step.

        Args:
            scalars: of the step, by TensorBoard tag.
            stop: number of the signal that this process received, or 0.

        Returns:
            The signal's number if any process received one (on an accelerator one step later),
            else 0.

        Raises:
            DivergenceError: names the network, the quantity and the step.
        """
        accelerator = self._run.accelerator
        values = torch.stack(list(scalars.values()))
        if accelerator.num_processes == 1 and not self._lag:
            if not all(map(math.isfinite, values.tolist())):
                self._diverged(self._run.step, list(scalars), values)
            return stop
        bad = values.isfinite().logical_not().any().double()
        flags = torch.stack([bad, bad.new_tensor(float(stop))])
        if accelerator.num_processes > 1:
            flags = accelerator.gather(flags[None]).max(dim=0).values
        now = _Verdict(self._run.step, list(scalars), values, flags)
        if not self._lag:
            return self._read(now)
        then, self._pending = self._pending, now
        return 0 if then is None else self._read(then)

    def settle(self) -> None:
        """Read what is still open, and look at every weight, so that nothing bad is saved.

        Raises:
            DivergenceError: names the network, the quantity and the step.
        """
        if self._pending is not None:
            self._read(self._pending)
            self._pending = None
        for player in (self._run.generator, self._run.discriminator):
            player.check_finite(self._run.step)

    def _read(self, verdict: _Verdict) -> int:
        bad, stop = verdict.flags.tolist()
        if bad:
            self._pending = None
            self._diverged(verdict.step, verdict.tags, verdict.values)
        return int(stop)

    @staticmethod
    def _diverged(step: int, tags: list[str], values: Tensor) -> NoReturn:
        named = zip(tags, values.tolist(), strict=True)
        wrong = {tag: value for tag, value in named if not math.isfinite(value)}
        raise DivergenceError(f"step {step}: {_describe(wrong)}")


def _describe(wrong: Mapping[str, float]) -> str:
    if not wrong:
        return "a number of another process is not finite"
    networks = {"logits": "discriminator", "sign": "discriminator", "penalty": "discriminator"}
    parts = []
    for tag, value in wrong.items():
        quantity, name = tag.split("/")
        network = networks.get(quantity, name)
        network = "generator" if name in GENERATOR_PENALTIES else network
        what = {"grad_norm": "gradient", "loss": "loss"}.get(quantity, f"{quantity} ({name})")
        parts.append(f"the {network}'s {what} is {value}")
    return "; ".join(parts)

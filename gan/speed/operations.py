"""Floating-point operations that a step needs."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from gan.speed.expert import ExpertLoop
from gan.speed.loops import period


def needed(loop: ExpertLoop) -> float:
    """Floating-point operations of one step, on average over the pattern of lazy penalties.

    Counted are the matrix products and convolutions of the best loop, forward, backward and
    double backward, a multiplication and an addition as two. Each pattern of due penalties is
    counted once.

    Args:
        loop: not compiled; trains some steps.

    Returns:
        The number.
    """
    config, length, counts = loop.config, period(loop.config), []
    known: dict[object, int] = {}
    begin = -(-loop.steps // length) * length
    for step in range(begin, begin + length):
        updates = range(step * config.n_critic, (step + 1) * config.n_critic)
        due = [sorted(loop.due(config.penalties, update)) for update in updates]
        pattern = str((due, sorted(loop.due(config.generator_penalties, step))))
        if pattern not in known:
            loop.steps = step
            known[pattern] = _count(loop)
        counts.append(known[pattern])
    return sum(counts) / length


def _count(loop: ExpertLoop) -> int:
    with _Counter() as counter:
        loop.step()
    total: int = counter.total
    return total


class _Counter(TorchDispatchMode):
    """Adds up what torch's own formulas say of each operation.

    Torch's FlopCounterMode, which has them, also keeps a tree of modules, and so refuses a
    gradient with respect to images.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total: int = 0

    def __torch_dispatch__(
        self, operation: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        out = operation(*arguments, **(named or {}))
        formula = flop_registry.get(operation._overloadpacket)
        if formula is not None:
            self.total += formula(*arguments, **(named or {}), out_val=out)
        return out

"""What Accelerate can be asked to do with two networks, and what it cannot."""

from __future__ import annotations

import os

from accelerate import Accelerator
from accelerate.utils import DistributedType

from gan.errors import ConfigError

_WHY_NOT = {
    DistributedType.FSDP: "sharded parameters cannot be differentiated twice, as penalties need",
    DistributedType.DEEPSPEED: "its engine steps one model, and a GAN's backward passes two",
    DistributedType.MEGATRON_LM: "it splits one transformer, not two networks",
    DistributedType.XLA: "its optimizers step through torch_xla, once for all networks",
}


def check_accelerator(accelerator: Accelerator) -> None:
    """Refuse what cannot train two networks correctly, before anything is prepared.

    Args:
        accelerator: the run's Accelerator.

    Raises:
        ConfigError: FSDP, DeepSpeed, Megatron or XLA; processes that do not know of each other;
            fp8; or fp16 without a gradient scaler, as on a CPU.
    """
    kind, precision = accelerator.distributed_type, accelerator.mixed_precision
    if kind in _WHY_NOT:
        raise ConfigError(
            f"{kind.value} cannot train two networks against each other: {_WHY_NOT[kind]}; "
            "use plain data parallelism (accelerate launch --multi_gpu, or torchrun)"
        )
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if launched != accelerator.num_processes:
        raise ConfigError(
            f"{launched} processes were launched, but the Accelerator sees "
            f"{accelerator.num_processes}, so each would train alone; launch them with torchrun or "
            "accelerate launch, and on CPUs give Accelerator(cpu=True)"
        )
    if precision not in ("no", "bf16", "fp16"):
        raise ConfigError(f"mixed_precision: {precision} is not one of no, bf16, fp16")
    if precision == "fp16" and accelerator.scaler is None:
        raise ConfigError(
            f"mixed_precision: fp16 on {accelerator.device.type} would silently run in fp32; "
            "use bf16 or no"
        )

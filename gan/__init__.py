"""Train two networks against each other, with custom loops, on Hugging Face Accelerate.

The public names, in the order in which a reader meets them. They are resolved when they are first
used, so that `gan --help` never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gan.augment import TRANSFORMS as TRANSFORMS
    from gan.augment import Augmentation as Augmentation
    from gan.chance import Chance as Chance
    from gan.checkpoint import newest_checkpoint as newest_checkpoint
    from gan.checkpoint import save_checkpoint as save_checkpoint
    from gan.choice import Machine as Machine
    from gan.choice import choose as choose
    from gan.config import Config as Config
    from gan.data import open_data as open_data
    from gan.data.stream import EndlessBatches as EndlessBatches
    from gan.data.stream import Stream as Stream
    from gan.data.stream import data_loader as data_loader
    from gan.ema import EMA as EMA
    from gan.errors import GanError as GanError
    from gan.export import load_generator as load_generator
    from gan.export import save_generator as save_generator
    from gan.freeze import frozen as frozen
    from gan.loop import fit as fit
    from gan.loop import start as start
    from gan.loop import train as train
    from gan.loop import train_step as train_step
    from gan.losses import LOSSES as LOSSES
    from gan.losses import AdversarialLoss as AdversarialLoss
    from gan.metrics import evaluate as evaluate
    from gan.networks import build_discriminator as build_discriminator
    from gan.networks import build_generator as build_generator
    from gan.penalties import GENERATOR_PENALTIES as GENERATOR_PENALTIES
    from gan.penalties import PENALTIES as PENALTIES
    from gan.penalties import Scores as Scores
    from gan.penalties import gradient_penalty as gradient_penalty
    from gan.penalties import r1_penalty as r1_penalty
    from gan.penalties import r2_penalty as r2_penalty
    from gan.player import Player as Player
    from gan.power_ema import rebuild as rebuild
    from gan.presets import preset_config as preset_config
    from gan.run import Run as Run
    from gan.run import build as build
    from gan.sampling import sample as sample
    from gan.schedules import Schedule as Schedule
    from gan.state import resume as resume
    from gan.steps import MicroBatch as MicroBatch
    from gan.steps import discriminator_step as discriminator_step
    from gan.steps import generator_step as generator_step

__version__ = "0.1.0"

_HOME = {
    # a whole run
    "train": "gan.loop",
    "resume": "gan.state",
    "Config": "gan.config",
    "preset_config": "gan.presets",
    "choose": "gan.choice",
    "Machine": "gan.choice",
    # the heart, for loops of one's own
    "Player": "gan.player",
    "MicroBatch": "gan.steps",
    "discriminator_step": "gan.steps",
    "generator_step": "gan.steps",
    "frozen": "gan.freeze",
    "EMA": "gan.ema",
    # what goes into a step
    "LOSSES": "gan.losses",
    "AdversarialLoss": "gan.losses",
    "PENALTIES": "gan.penalties",
    "GENERATOR_PENALTIES": "gan.penalties",
    "Scores": "gan.penalties",
    "r1_penalty": "gan.penalties",
    "r2_penalty": "gan.penalties",
    "gradient_penalty": "gan.penalties",
    "Augmentation": "gan.augment",
    "TRANSFORMS": "gan.augment",
    "Chance": "gan.chance",
    "Schedule": "gan.schedules",
    "build_generator": "gan.networks",
    "build_discriminator": "gan.networks",
    # data
    "open_data": "gan.data",
    "EndlessBatches": "gan.data.stream",
    "Stream": "gan.data.stream",
    "data_loader": "gan.data.stream",
    # a run, piece by piece
    "Run": "gan.run",
    "build": "gan.run",
    "start": "gan.loop",
    "fit": "gan.loop",
    "train_step": "gan.loop",
    # what comes out
    "sample": "gan.sampling",
    "evaluate": "gan.metrics",
    "rebuild": "gan.power_ema",
    "save_generator": "gan.export",
    "load_generator": "gan.export",
    "save_checkpoint": "gan.checkpoint",
    "newest_checkpoint": "gan.checkpoint",
    "GanError": "gan.errors",
}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOME:
        raise AttributeError(f"module 'gan' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__

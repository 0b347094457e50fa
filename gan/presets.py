"""The presets: each is what differs from `Config()`, its paper, and what was measured.

A preset is a starting point. `gan train digits --steps 500` changes one option of it, and the
run's `config.yaml` holds what was used in full.
"""

from __future__ import annotations

import difflib
from typing import Any, NamedTuple

from gan.config import Config
from gan.errors import ConfigError


class Preset(NamedTuple):
    """One row of the table: a sentence, where it comes from, and its options."""

    summary: str
    source: str
    options: dict[str, Any]


_RPGAN: dict[str, Any] = {
    "loss": "relativistic",
    "generator": {"beta1": 0.0, "beta2": "0.9..0.99,to=50%"},
    "discriminator": {"beta1": 0.0, "beta2": "0.9..0.99,to=50%"},
}


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        merged[key] = _merge(base.get(key, {}), value) if isinstance(value, dict) else value
    return merged


PRESETS: dict[str, Preset] = {
    "digits": Preset(
        "handwritten digits 8x8, by class, on a laptop in half a minute",
        "RpGAN + R1 + R2: Huang et al. 2024, arXiv 2501.05441",
        _merge(
            _RPGAN,
            {
                "data": "digits",
                "conditional": True,
                "penalties": ["r1/4", "r2/4"],
                "gamma": 1.0,
                "steps": 4000,
                "ema_half_life": 5000,
                "sample_num": 80,
                "generator": {"family": "mlp", "z_dim": 32, "hidden": [128, 256], "lr": 1e-3},
                "discriminator": {"family": "mlp", "hidden": [256, 128], "lr": 1e-3},
            },
        ),
    ),
    "fashion-mnist": Preset(
        "garments 28x28, by class, on a laptop in ten minutes",
        "RpGAN + R1 + R2: Huang et al. 2024, arXiv 2501.05441",
        _merge(
            _RPGAN,
            {
                "data": "fashion-mnist",
                "conditional": True,
                "penalties": ["r1/8", "r2/8"],
                "gamma": 0.3,
                "steps": 18_000,
                "sample_num": 80,
                "channels_last": True,
                "generator": {
                    "z_dim": 64,
                    "width": 16,
                    "hidden": [256],
                    "lr": "0.002..0.0002,from=60%",
                },
                "discriminator": {
                    "width": 16,
                    "hidden": [256],
                    "norm": "none",
                    "lr": "0.002..0.0002,from=60%",
                },
            },
        ),
    ),
    "dcgan64": Preset(
        "the classic DCGAN at 64x64, for any images (--data)",
        "Radford et al. 2016, arXiv 1511.06434",
        {
            "data": "cifar10",
            "resolution": "64",
            "batch_size": 128,
            "steps": 100_000,
            "generator": {"width": 64},
            "discriminator": {"width": 64},
        },
    ),
    "cifar10": Preset(
        "colour photographs 32x32",
        "DCGAN with spectral norm and hinge loss: Miyato et al. 2018, arXiv 1802.05957",
        {
            "data": "cifar10",
            "loss": "hinge",
            "steps": 100_000,
            "generator": {"z_dim": 128, "width": 64, "beta1": 0.0, "beta2": 0.9},
            "discriminator": {"width": 64, "norm": "spectral", "beta1": 0.0, "beta2": 0.9},
        },
    ),
    "ring": Preset(
        "eight Gaussians in the plane, in ten seconds",
        "RpGAN + R1 + R2 on the usual toy: Huang et al. 2024, arXiv 2501.05441",
        _merge(
            _RPGAN,
            {
                "data": "ring",
                "penalties": ["r1", "r2"],
                "gamma": 0.1,
                "batch_size": 256,
                "steps": 2000,
                "sample_num": 1024,
                "sample_every": 250,
                "generator": {
                    "family": "mlp",
                    "z_dim": 16,
                    "hidden": [64, 64],
                    "norm": "none",
                    "lr": 1e-3,
                },
                "discriminator": {"family": "mlp", "hidden": [64, 64], "lr": 1e-3},
            },
        ),
    ),
}


def preset_config(name: str) -> Config:
    """Options of a preset.

    Args:
        name: a key of `PRESETS`.

    Returns:
        The defaults with the preset laid over them.

    Raises:
        ConfigError: no such preset; names the nearest and lists all.
    """
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"preset: {name!r} is unknown; {hint}presets: {', '.join(PRESETS)}")
    return Config.from_dict({"preset": name, **PRESETS[name].options})

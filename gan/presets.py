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
    """One row of the table: a sentence, where it comes from, its options, and what was measured.

    What was measured is in examples/results/README.md with all that belongs to it.
    """

    summary: str
    source: str
    options: dict[str, Any]
    measured: str = "not run here"


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


_FASHION = _merge(
    _RPGAN,
    {
        "data": "fashion-mnist",
        "penalties": ["r1/8", "r2/8"],
        "gamma": "0.2..0.02,cosine",
        "reuse_fakes": True,
        "joint_forward": True,
        "channels_last": True,
        "ema_rampup": 0.02,
        "generator": {
            "z_dim": 64,
            "width": 32,
            "hidden": [256],
            "lr": "0.002..0.0001,cosine",
        },
        "discriminator": {
            "width": 32,
            "hidden": [256],
            "norm": "none",
            "lr": "0.002..0.0001,cosine",
        },
    },
)

_SNGAN = Preset(
    "colour photographs 32x32; one GPU, half a day",
    "SNGAN: Miyato et al. 2018, arXiv 1802.05957, appendix B, with the average of our own",
    {
        "data": "cifar10",
        "loss": "hinge",
        "n_critic": 5,
        "steps": 100_000,
        "generator": {
            "family": "resnet",
            "z_dim": 128,
            "width": 256,
            "max_width": 256,
            "lr": "0.0002..0",
            "beta1": 0.0,
            "beta2": 0.9,
        },
        "discriminator": {
            "family": "resnet",
            "width": 128,
            "max_width": 128,
            "norm": "spectral",
            "options": ["flat=2"],
            "lr": "0.0002..0",
            "beta1": 0.0,
            "beta2": 0.9,
        },
    },
)

_R3GAN_SOURCE = (
    "R3GAN: Huang et al. 2024, arXiv 2501.05441, as published for 8 processes (with one: "
    "--gradient_accumulation_steps 8), but the penalties are taken in fp32"
)


def _r3gan(options: dict[str, Any], width: int, low_precision: int) -> dict[str, Any]:
    """The published settings that do not depend on the data."""
    network = {
        "family": "r3gan",
        "width": width,
        "options": [f"low_precision={low_precision}"],
        "lr": "0.0002..0.00005,cosine,to=20M",
        "beta1": 0.0,
        "beta2": "0.9..0.99,cosine,to=20M",
    }
    base = {
        "loss": "relativistic",
        "penalties": ["r1", "r2"],
        "augment": "r3gan",
        "horizontal_flip": True,
        "mixed_precision": "bf16",
        "channels_last": True,
        "ema_rampup": None,
        "generator": {**network, "z_dim": 64},
        "discriminator": network,
    }
    return _merge(base, options)


_STYLEGAN2_SOURCE = (
    "Karras et al. 2020, arXiv 1912.04958 and 2006.06676, the {} of the latter, but in fp32 (as "
    "published: --mixed_precision fp16; bf16 does too)"
)


def _stylegan2(
    options: dict[str, Any], width: int, mapping_layers: int, group_size: int
) -> dict[str, Any]:
    """The published settings that do not depend on the size.

    The paper takes each lazy penalty in an update of its own and makes lr and betas smaller for
    that; here it is a part of an ordinary update, so they stay as they are.
    """
    network = {"family": "stylegan2", "width": width, "lr": 0.0025, "beta1": 0.0, "beta2": 0.99}
    precision = ["low_precision=4", "clamp=256"]
    base = {
        "data": "path/to/pictures",
        "loss": "non-saturating",
        "penalties": ["r1/16"],
        "generator_penalties": ["path-length/4"],
        "augment": "ada",
        "horizontal_flip": True,
        "channels_last": True,
        "generator": {
            **network,
            "z_dim": 512,
            "options": [f"mapping_layers={mapping_layers}", *precision],
        },
        "discriminator": {**network, "options": [f"group_size={group_size}", *precision]},
    }
    return _merge(base, options)


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
                "reuse_fakes": True,
                "joint_forward": True,
                "steps": 4000,
                "ema_half_life": 5000,
                "ema_rampup": 0.02,
                "sample_num": 80,
                "generator": {
                    "family": "mlp",
                    "z_dim": 32,
                    "hidden": [128, 256],
                    "lr": "0.002..0.0001,cosine",
                },
                "discriminator": {
                    "family": "mlp",
                    "hidden": [256, 128],
                    "lr": "0.002..0.0001,cosine",
                },
            },
        ),
        "every class as frequent as it should be, at its end in 20 seconds (two seeds)",
    ),
    "fashion-mnist": Preset(
        "garments 28x28, by class, on a laptop in ten minutes",
        "RpGAN + R1 + R2: Huang et al. 2024, arXiv 2501.05441",
        _merge(
            _FASHION,
            {
                "conditional": True,
                "gamma": "0.2..0.02,cosine,to=45%",
                "ema_rampup": 0.01,
                "steps": 12_000,
                "sample_num": 80,
                # Calm by 45%, so that those who look early see about what they get at the end.
                "generator": {"lr": "0.002..0.0001,cosine,to=45%"},
                "discriminator": {"lr": "0.002..0.0001,cosine,to=45%"},
            },
        ),
        "FD 5.2 and 5.6 times the floor after 4 minutes, 4.4 and 4.6 times at its end (two seeds)",
    ),
    "fashion-mnist-unconditional": Preset(
        "garments 28x28, without labels, on a laptop in five minutes",
        "RpGAN + R1 + R2: Huang et al. 2024, arXiv 2501.05441",
        _merge(_FASHION, {"gamma": "1.5..0.4,cosine", "steps": 6000}),
        "FD 11.7 and 9.2 times the floor after 4 minutes of one core, 8.4 and 8.0 times at its end "
        "(two seeds)",
    ),
    "dcgan64": Preset(
        "the classic DCGAN at 64x64, for any images (--data)",
        "Radford et al. 2016, arXiv 1511.06434",
        {
            "data": "cifar10",
            "resolution": "64",
            "batch_size": 128,
            "steps": 100_000,
            "reuse_fakes": True,
            "channels_last": True,
            "generator": {"width": 64},
            "discriminator": {"width": 64},
        },
    ),
    "cifar10": _SNGAN,
    "sngan-cifar10": _SNGAN,
    "r3gan-cifar10": Preset(
        "colour photographs 32x32, by class, at the state of the art; 8 processes, days",
        f"{_R3GAN_SOURCE}; 250M images in all",
        _r3gan(
            {
                "data": "cifar10",
                "conditional": True,
                "batch_size": 64,
                "steps": 488_281,
                "gamma": "0.05..0.005,cosine,to=20M",
                "augment_strength": "0..0.55,cosine,to=20M",
                "ema_half_life": "0..5000000,cosine,to=20M",
            },
            width=768,
            low_precision=3,
        ),
    ),
    "r3gan-ffhq64": Preset(
        "faces 64x64, for any images (--data); 8 processes, days",
        f"{_R3GAN_SOURCE}; the length is not published",
        _r3gan(
            {
                "data": "path/to/ffhq",
                "resolution": "64",
                "batch_size": 32,
                "steps": 390_625,
                "gamma": "2..0.2,cosine,to=20M",
                "augment_strength": "0..0.3,cosine,to=20M",
                "ema_half_life": "0..500000,cosine,to=20M",
            },
            width=384,
            low_precision=4,
        ),
    ),
    "r3gan-ffhq256": Preset(
        "faces 256x256, for any images (--data); 8 processes, days",
        f"{_R3GAN_SOURCE}; the length is not published",
        _r3gan(
            {
                "data": "path/to/ffhq",
                "resolution": "256",
                "batch_size": 32,
                "steps": 390_625,
                "gamma": "150..15,cosine,to=20M",
                "augment_strength": "0..0.3,cosine,to=20M",
                "ema_half_life": "0..500000,cosine,to=20M",
            },
            width=96,
            low_precision=4,
        ),
    ),
    "stylegan2-64": Preset(
        "any images at 64x64 (--data), few ones too; one GPU, days",
        _STYLEGAN2_SOURCE.format("automatic settings with x-flips"),
        _stylegan2(
            {
                "resolution": "64",
                "batch_size": 32,
                "steps": 781_250,
                "gamma": 0.0256,
                "ema_half_life": 10_000,
            },
            width=256,
            mapping_layers=2,
            group_size=4,
        ),
    ),
    "stylegan2-256": Preset(
        "any images at 256x256 (--data), few ones too; 8 processes, a day and a half",
        _STYLEGAN2_SOURCE.format("settings for FFHQ"),
        _stylegan2(
            {
                "resolution": "256",
                "batch_size": 8,
                "steps": 390_625,
                "gamma": 1.0,
                "ema_half_life": 20_000,
                "ema_rampup": None,
            },
            width=64,
            mapping_layers=8,
            group_size=8,
        ),
    ),
    "few-shot": Preset(
        "a folder of 50 to 2,000 pictures (--data) at 64x64, on a laptop in hours",
        "Zhao et al. 2020, arXiv 2006.10738, with the loss of arXiv 2501.05441",
        _merge(
            _RPGAN,
            {
                "data": "path/to/pictures",
                "resolution": "64",
                "augment": "diffaugment",
                "penalties": ["r1/4", "r2/4"],
                "gamma": "0.8..0.08,cosine",
                "batch_size": 32,
                "steps": 20_000,
                "channels_last": True,
                "generator": {
                    "z_dim": 64,
                    "width": 32,
                    "max_width": 256,
                    "hidden": [256],
                    "lr": "0.001..0.0001,from=60%",
                },
                "discriminator": {
                    "width": 32,
                    "max_width": 256,
                    "hidden": [256],
                    "norm": "none",
                    "lr": "0.001..0.0001,from=60%",
                },
            },
        ),
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

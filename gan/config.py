"""Every option of a training run, as frozen dataclasses that round-trip through YAML.

The field docstrings are the command line's help. Nothing here imports torch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from gan import serial
from gan.data_config import DataConfig
from gan.errors import ConfigError
from gan.network_config import DiscriminatorConfig, GeneratorConfig, network_problems
from gan.schedules import Schedule

VERSION = 1
"""Version of the file format. A file of a newer version is refused."""

Loss = Literal[
    "minimax",
    "non-saturating",
    "hinge",
    "least-squares",
    "wasserstein",
    "relativistic",
    "relativistic-average",
]
PENALTY_NAMES = (
    "r1",
    "r2",
    "wgan-gp",
    "wgan-gp-one-sided",
    "dragan",
    "zero-centered-gp",
    "lecam",
    "consistency",
    "balanced-consistency",
)
"""Regularisers of the discriminator; gan.penalties holds one row for each."""
GENERATOR_PENALTY_NAMES = ("path-length", "feature-matching")
"""Those of the generator."""


@dataclass(frozen=True)
class Penalty:
    """One regulariser of the discriminator: written `NAME[=WEIGHT][/EVERY]`.

    `r1` takes its weight from `gamma`; `r1/16` is due every 16th update, with 16 times the weight;
    `wgan-gp=10` gives the weight, which may be a schedule.
    """

    name: str
    weight: Schedule | None = None
    every: int = 1

    @classmethod
    def parse(cls, text: str | Penalty) -> Penalty:
        """Read a penalty from its written form.

        Args:
            text: see the class.

        Returns:
            The penalty.

        Raises:
            ValueError: `text` does not have the written form.
        """
        if isinstance(text, Penalty):
            return text
        match = re.fullmatch(r"([a-z0-9-]+)(?:=([^/]+))?(?:/(\d+))?", text.strip())
        if match is None or match[3] == "0":
            raise ValueError(
                f"{text!r} is no penalty; write NAME, NAME=WEIGHT or NAME=WEIGHT/EVERY, "
                "with EVERY from 1"
            )
        return cls(match[1], Schedule.parse(match[2]) if match[2] else None, int(match[3] or 1))

    def __str__(self) -> str:
        """Give the written form back."""
        weight = "" if self.weight is None else f"={self.weight}"
        return self.name + weight + (f"/{self.every}" if self.every != 1 else "")


@dataclass(frozen=True, kw_only=True)
class Config(DataConfig):
    """Everything that decides what a training run does."""

    version: int = VERSION
    """Version of this file's format."""
    preset: str = "custom"
    """The preset that the options started from."""

    conditional: bool = False
    """Give both networks the class labels."""
    class_balanced: bool = False
    """Show every class equally often, however many images it has."""
    horizontal_flip: bool = False
    """Mirror each real image with probability one half."""
    num_workers: int = 0
    """Processes that load images; 0: the training process itself."""

    loss: Loss = "non-saturating"
    """Adversarial loss; relativistic is the pairing loss of R3GAN."""
    penalties: tuple[Penalty, ...] = ()
    """Regularisers of the discriminator, each NAME[=WEIGHT][/EVERY]: r1, r1/16, wgan-gp=10, ..."""
    gamma: Schedule = Schedule(1.0)
    """Weight of r1 and r2: gamma / 2 times the squared gradient norm."""
    generator_penalties: tuple[Penalty, ...] = ()
    """Regularisers of the generator, likewise: path-length/4, feature-matching, ..."""

    augment: Literal["none", "diffaugment", "ada", "r3gan", "ada-full"] = "none"
    """Change what the discriminator sees, real and generated alike, so that few images last."""
    augment_strength: Schedule | None = None
    """Probability of each change, 0 to 1; None: 1 for diffaugment, the controller for others."""
    ada_target: float = 0.6
    """Mean sign of the real logits that the controller of the strength holds."""
    ada_speed: float = 500_000.0
    """Images over which the controller can move the strength from 0 to 1."""

    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    """The generator and its optimizer."""
    discriminator: DiscriminatorConfig = field(default_factory=DiscriminatorConfig)
    """The discriminator and its optimizer."""

    steps: int = 10_000
    """Length of the run, in updates of the generator."""
    batch_size: int = 64
    """Real images of one micro-batch on one process."""
    gradient_accumulation_steps: int = 1
    """Micro-batches of one update, of either network."""
    n_critic: int = 1
    """Updates of the discriminator for one of the generator."""
    reuse_fakes: bool = False
    """Train the generator on the fakes that the discriminator has just seen: faster, because they
    are made once, unless an update has several micro-batches."""
    joint_forward: bool = False
    """Judge real and fake images in one forward, where the discriminator judges each by itself (no
    batch or spectral norm): faster for small networks, a little slower for large ones on a CPU."""
    ema_half_life: Schedule = Schedule(10_000.0)
    """Half-life of the averaged generator, in images; 0: no averaging."""
    ema_rampup: float | None = 0.05
    """The half-life is at most this share of the images seen; None: no ramp-up."""
    ema_widths: tuple[float, ...] = ()
    """Relative widths of power-function averages to keep besides, as in 0.05 0.1 0.2: any width
    between is rebuilt from the checkpoints after the training."""

    mixed_precision: Literal["no", "fp16", "bf16"] = "no"
    """Precision of forward and backward; penalties are always in fp32, and so is what shares a
    forward with them."""
    compile: bool = False
    """Compile both networks with torch.compile."""
    channels_last: bool = False
    """Keep images and convolutions in channels-last memory."""
    sync_batch_norm: bool = False
    """Share batch-norm statistics between the processes (accelerators only)."""
    find_unused_parameters: bool = False
    """Let networks of your own leave weights out of some updates of several processes, which costs
    a walk through the graph each forward."""
    seed: int = 0
    """Decides the initial weights, the order of the data, and every random number of a step."""

    runs_dir: Path = Path("runs")
    """Folder that holds the run folders."""
    name: str | None = None
    """Name of the run's folder; None: the preset and the next free number."""
    log_every: int = 50
    """Steps between points in TensorBoard."""
    sample_every: int | None = 500
    """Steps between grids of samples; None: never."""
    evaluate_every: int | None = None
    """Steps between evaluations, and one at the end; None: never."""
    evaluate_features: str = "self"
    """Feature network of the evaluations: self, inception, dinov2, clip, or a path."""
    evaluate_num: int = 2000
    """Samples of an evaluation."""
    save_every: int | None = 1000
    """Steps between checkpoints; None: only at the end."""
    keep: int = 2
    """How many of the newest checkpoints to keep."""
    sample_num: int = 64
    """Samples in a grid."""
    on_divergence: Literal["stop", "rollback"] = "stop"
    """What to do when a number stops being finite."""
    max_rollbacks: int = 3
    """How often a run may roll back before it stops."""

    @property
    def images_per_process(self) -> int:
        """Real images that one process sees in one update of the discriminator."""
        return self.batch_size * self.gradient_accumulation_steps

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], base: Config | None = None) -> Config:
        """Lay values over a base, checking names and types of all of them.

        Args:
            values: nested mapping of plain values, as YAML gives it.
            base: what is not in `values` comes from here; None: the defaults.

        Returns:
            The configuration. Call `check` before using it.

        Raises:
            ConfigError: unknown fields and wrong types, all at once.
        """
        base = (base or cls()).with_networks_of(values)
        problems: list[str] = []
        version = values.get("version", VERSION)
        if isinstance(version, int) and version > VERSION:
            raise ConfigError(
                f"version: {version} is newer than this installation, which reads up to {VERSION}; "
                "upgrade gan-toolkit"
            )
        config: Config = serial.overlay(base, values, problems)
        if problems:
            raise ConfigError(problems)
        return config

    def with_networks_of(self, values: Mapping[str, Any]) -> Config:
        """Make room for other networks: what was asked of the former is not asked of them.

        Args:
            values: nested mapping, as for `from_dict`.

        Returns:
            Itself, without the options of a network whose `family` or `module` will be another.
        """
        changed: dict[str, Any] = {}
        for role in ("generator", "discriminator"):
            network, asked = getattr(self, role), values.get(role)
            if isinstance(asked, Mapping) and any(
                name in asked and asked[name] != getattr(network, name)
                for name in ("family", "module")
            ):
                changed[role] = network.without_options()
        return replace(self, **changed)

    def to_dict(self) -> dict[str, Any]:
        """Plain nested values, ready for YAML or JSON."""
        return cast("dict[str, Any]", serial.to_plain(self))

    @classmethod
    def load(cls, path: Path) -> Config:
        """Read a `config.yaml`.

        Args:
            path: the file.

        Returns:
            The configuration, unchecked.

        Raises:
            ConfigError: no such file, not YAML, unknown fields, wrong types or a newer version.
        """
        try:
            values = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not a text file"
            raise ConfigError(f"--config: cannot read {path}: {reason}") from None
        except yaml.YAMLError as error:
            raise ConfigError(
                f"--config: {path} is not YAML: {' '.join(str(error).split())}"
            ) from None
        if not isinstance(values, dict):
            raise ConfigError(
                f"--config: {path} holds no options; expected lines like 'steps: 1000'"
            )
        try:
            return cls.from_dict(values)
        except ConfigError as error:
            raise ConfigError([f"{path}: {problem}" for problem in error.problems]) from None

    def save(self, path: Path) -> None:
        """Write `config.yaml`, whole or not at all; `load` gives the same configuration back.

        Args:
            path: the file.

        Raises:
            ConfigError: it cannot be written; what was there is untouched.
        """
        text = yaml.safe_dump(self.to_dict(), sort_keys=False, allow_unicode=True)
        work = path.with_name(f".{path.name}.tmp")
        try:
            with work.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            work.replace(path)
        except OSError as error:
            with suppress(OSError):
                work.unlink(missing_ok=True)
            raise ConfigError(f"cannot write {path}: {error.strerror or error}") from None

    def check(self) -> Config:
        """Look for values and combinations that cannot be.

        Returns:
            Itself.

        Raises:
            ConfigError: all problems at once, each naming field, value and what is allowed.
        """
        problems = list(_problems(self))
        if problems:
            raise ConfigError(problems)
        return self

    def differences(self, other: Config) -> dict[str, tuple[Any, Any]]:
        """Fields that differ, as {"generator.lr": (mine, theirs)}.

        Args:
            other: the configuration to compare with.

        Returns:
            Dotted field names with both plain values.
        """
        mine, theirs = serial.flatten(self.to_dict()), serial.flatten(other.to_dict())
        return {key: (mine[key], theirs[key]) for key in mine if mine[key] != theirs[key]}


def _problems(config: Config) -> Iterator[str]:
    positive = ("steps", "batch_size", "gradient_accumulation_steps", "n_critic", "keep")
    for name in (*positive, "log_every", "sample_num", "evaluate_num"):
        if getattr(config, name) < 1:
            yield f"{name}: {getattr(config, name)} is below 1"
    for name in ("sample_every", "save_every", "evaluate_every"):
        if getattr(config, name) is not None and getattr(config, name) < 1:
            yield f"{name}: {getattr(config, name)} is below 1; None: never"
    for name in ("num_workers", "max_rollbacks", "seed"):
        if getattr(config, name) < 0:
            yield f"{name}: {getattr(config, name)} is negative"
    if config.seed >= 2**32:
        yield f"seed: {config.seed} is above 4294967295, the most that numpy takes"
    try:
        _ = config.size
    except ConfigError as error:
        yield from error.problems
    if config.channels not in (None, 1, 3, 4):
        yield f"channels: {config.channels} is not one of 1, 3, 4"
    if config.conditional and config.labels == "none":
        yield "conditional: the networks need class labels, but labels is none"
    if config.name is not None and (
        config.name in ("", ".", "..") or {"/", "\\"} & set(config.name)
    ):
        yield f"name: {config.name!r} is not the name of a folder"
    if config.ema_rampup is not None and config.ema_rampup <= 0:
        yield f"ema_rampup: {config.ema_rampup:g} is not above 0; None turns it off"
    for name, schedule in (("gamma", config.gamma), ("ema_half_life", config.ema_half_life)):
        if min(schedule.values) < 0:
            yield f"{name}: {schedule} goes below 0"
    for field_name, penalties, allowed in (
        ("penalties", config.penalties, PENALTY_NAMES),
        ("generator_penalties", config.generator_penalties, GENERATOR_PENALTY_NAMES),
    ):
        for penalty in penalties:
            if penalty.name not in allowed:
                yield f"{field_name}: {penalty.name!r} is not one of {', '.join(allowed)}"
            if penalty.weight is not None and min(penalty.weight.values) < 0:
                yield f"{field_name}: the weight of {penalty} goes below 0"
        names = [penalty.name for penalty in penalties]
        if len(set(names)) < len(names):
            yield f"{field_name}: {' '.join(map(str, penalties))} names one of them twice"
    yield from _augment_problems(config)
    if any(not 0 < width < 0.28 for width in config.ema_widths):
        yield f"ema_widths: {' '.join(map(str, config.ema_widths))} are not all in (0, 0.28)"
    if len(set(config.ema_widths)) < len(config.ema_widths):
        yield f"ema_widths: {' '.join(map(str, config.ema_widths))} names one of them twice"
    yield from network_problems("generator", config.generator)
    yield from network_problems("discriminator", config.discriminator)


def _augment_problems(config: Config) -> Iterator[str]:
    strength = config.augment_strength
    if strength is not None and not all(0 <= value <= 1 for value in strength.values):
        yield f"augment_strength: {strength} is outside [0, 1]"
    if strength is not None and config.augment == "none":
        yield "augment_strength: there is no augmentation; name one with --augment"
    if not -1 < config.ada_target < 1:
        yield f"ada_target: {config.ada_target:g} is outside (-1, 1); the paper uses 0.6"
    if config.ada_speed <= 0:
        yield f"ada_speed: {config.ada_speed:g} is not above 0"

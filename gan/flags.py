"""The flags of each command, as dataclasses that tyro turns into a command line."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from gan.config import Config, Penalty
from gan.data_config import DataConfig
from gan.errors import ConfigError
from gan.network_config import Option
from gan.schedules import Schedule
from gan.words import flags_of, problems

Flags = TypeVar("Flags")


@dataclass(frozen=True)
class Train:
    """Train a generator and a discriminator. Every option of the run is a flag."""

    options: Annotated[Config, tyro.conf.arg(name="")]
    config: Path | None = None
    """Start from the options in this file, such as a run's config.yaml."""
    dry_run: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Build everything, time a few steps, print the plan and write nothing."""


@dataclass(frozen=True)
class Resume:
    """Go on with a run from its newest complete checkpoint. Flags change its options."""

    options: Annotated[Config, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class Data:
    """Look at a data source: in words, and as a contact sheet of what training would see."""

    options: Annotated[DataConfig, tyro.conf.arg(name="")]
    split: Literal["train", "test"] = "train"
    """Which part of the source."""
    pairs: Literal["none", "folders", "side-by-side"] = "none"
    """For image-to-image: match folders A and B by name, or take the halves of each image."""
    out: Path = Path("contact-sheet.png")
    """Contact sheet to write."""


@dataclass(frozen=True)
class Bench:
    """Time training against a plain loop and the best one. Every option of the run is a flag.

    `gan bench data SOURCE` times the preparation and the stream of data instead.
    """

    options: Annotated[Config, tyro.conf.arg(name="")]
    rounds: int | None = None
    """How often each loop is timed, in turn; None: 15 times, or 3 where that takes long."""
    seconds: float = 0.3
    """About how long each loop is timed in a round."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON."""


@dataclass(frozen=True)
class BenchData:
    """Time the preparation and the stream of a data source against what people use otherwise."""

    options: Annotated[DataConfig, tyro.conf.arg(name="")]
    batch_size: int = 64
    """Of the stream."""
    rounds: int = 3
    """How often each pair is timed, in turn."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON."""


Which = Literal["newest", "best"]


@dataclass(frozen=True)
class Sample:
    """Draw samples from the averaged generator of a run, or from an exported generator."""

    num: int = 64
    """How many."""
    seed: int = 0
    """Seed of the first sample; the others follow."""
    seeds: str | None = None
    """The seeds themselves instead: 0-63, or 1,5,8-11."""
    labels: str | None = None
    """Classes, taken in turn: 3, or 0-9, or 1,7; None: the seed decides."""
    truncation: float | None = None
    """Less variety, fewer failures: bound of z, or for stylegan2 the way from the average style."""
    checkpoint: Which = "newest"
    """Which checkpoint of a run."""
    ema_width: float | None = None
    """Rebuild a power-function average of that width, from a run with --ema_widths."""
    nearest: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Show each sample beside its nearest training images: copies give themselves away."""
    data: str | None = None
    """With --nearest, the training images; None: those of the run."""
    out: Path = Path("samples.png")
    """A grid (.png), a folder, .zip or .npz."""


@dataclass(frozen=True)
class Interpolate:
    """Show the way from sample to sample."""

    seeds: str = "0-7"
    """Seeds to visit: 0-7, or 1,5,8-11."""
    frames: int | None = None
    """Images from one seed to the next; None: 8 in a strip, 24 in an animation."""
    label: int | None = None
    """Class of all images; None: the first seed decides."""
    truncation: float | None = None
    """Less variety, fewer failures: bound of z, or for stylegan2 the way from the average style."""
    checkpoint: Which = "newest"
    """Which checkpoint of a run."""
    fps: int = 20
    """Images in a second of an animation."""
    out: Path = Path("interpolation.png")
    """A strip (.png), or an animation: .gif, .webp, or .mp4 where ffmpeg is."""


@dataclass(frozen=True)
class Evaluate:
    """Compare a generator, or images, with real ones, and note how the numbers were made."""

    options: Annotated[DataConfig, tyro.conf.arg(name="")]
    features: str = "self"
    """Feature network: self, inception, vgg16, dinov2, clip, NAME:FILE, or a path."""
    num: int = 10_000
    """How many samples, or at most how many of the images."""
    seed: int = 0
    """First seed of the samples."""
    metrics: tuple[str, ...] | None = None
    """Some of fid, kid, inception_score, precision, recall; None: all that are possible."""
    kid_subset: int = 1000
    """Images in each of kid's hundred subsets; papers use 1000."""
    truncation: float | None = None
    """As in gan sample; None: off, as in papers."""
    weights: Literal["ema", "generator"] = "ema"
    """The averaged generator of a run, or the raw one."""
    checkpoint: Which = "newest"
    """Which checkpoint of a run."""
    split: Literal["train", "test"] = "train"
    """Which real images; where there are others, those give the floor, else halves of them."""


@dataclass(frozen=True)
class Export:
    """Write a generator for programs without this package, and compare its pictures."""

    format: Literal["onnx", "torchscript"] = "onnx"
    """What to write."""
    checkpoint: Which = "newest"
    """Which checkpoint of a run."""
    out: Path | None = None
    """File to write, ending in .onnx or .pt; None: beside the exported generator."""


@dataclass(frozen=True)
class Push:
    """Upload the exported generator of a run to the Hugging Face hub."""

    public: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Let everyone see a new repository."""


@dataclass(frozen=True)
class Runs:
    """List runs: preset, step, status, newest metrics, size on disk."""


@dataclass(frozen=True)
class Compare:
    """Put the newest grids and the curves of runs side by side in one picture."""

    out: Path = Path("compare.png")
    """Picture to write."""


def parse(kind: type[Flags], words: Sequence[str], prog: str, default: Flags) -> Flags:
    """Lay the flags of a command over its defaults.

    Args:
        kind: dataclass of the command's flags.
        words: of the command line.
        prog: what the usage line calls the command.
        default: values of the flags that are not given.

    Returns:
        The flags.

    Raises:
        ConfigError: a word that cannot be; a sentence for each.
    """
    command = " ".join(prog.split()[:2])
    if not {"-h", "--help"} & set(words):
        found = list(problems(words, flags_of(kind), command))
        if found:
            raise ConfigError(found)
    options = getattr(default, "options", None)
    if isinstance(options, Config):
        room = options.with_networks_of(_networks(words))
        default = replace(default, options=room)  # type: ignore[type-var]
    registry = tyro.constructors.ConstructorRegistry()
    for written in (Schedule, Penalty, Option):
        registry.primitive_rule(_rule(written))
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                kind,
                prog=prog,
                args=words,
                default=default,
                use_underscores=True,
                registry=registry,
            )
    except SystemExit as error:
        if not error.code:
            raise
        # What only tyro finds comes in a box.
        text = " ".join(re.sub(r"[^\w\s!-~]", " ", said.getvalue()).split())
        raise ConfigError(text.partition(" For full helptext")[0]) from None


def _networks(words: Sequence[str]) -> dict[str, dict[str, str]]:
    """Which networks are asked for: {role: {family or module: name}}."""
    asked: dict[str, dict[str, str]] = {}
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        if match := re.fullmatch(r"--(generator|discriminator)\.(family|module)(?:=(.*))?", word):
            role, name, value = match.groups()
            asked.setdefault(role, {})[name] = following if value is None else value
    return asked


def _rule(written: Any) -> Any:
    """How tyro reads and shows a type that has a written form."""

    def rule(info: Any) -> Any:
        optional = info.type == written | None  # which tyro would take for two subcommands
        if info.type is not written and not optional:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar=written.__name__.upper(),
            instance_from_str=lambda words: (
                None if optional and words == ["None"] else written.parse(words[0])
            ),
            is_instance=lambda value: isinstance(value, written) or (optional and value is None),
            str_from_instance=lambda value: [str(value)],
        )

    return rule

"""The flags of each command, as dataclasses that tyro turns into a command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from gan.config import Config, Penalty
from gan.network_config import Option
from gan.schedules import Schedule

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
class Sample:
    """Draw samples from the averaged generator of a run."""

    num: int = 64
    """How many."""
    seed: int = 0
    """Seed of the first sample; the others follow."""
    out: Path = Path("samples.png")
    """Picture to write."""


def parse(kind: type[Flags], words: Sequence[str], prog: str, default: Flags) -> Flags:
    """Lay the flags of a command over its defaults.

    Args:
        kind: dataclass of the command's flags.
        words: of the command line.
        prog: what the usage line calls the command.
        default: values of the flags that are not given.

    Returns:
        The flags. A mistake is explained on stderr and exits with 2.
    """
    registry = tyro.constructors.ConstructorRegistry()
    for written in (Schedule, Penalty, Option):
        registry.primitive_rule(_rule(written))
    return tyro.cli(
        kind, prog=prog, args=words, default=default, use_underscores=True, registry=registry
    )


def _rule(written: Any) -> Any:
    """How tyro reads and shows a type that has a written form."""

    def rule(info: Any) -> Any:
        if info.type is not written:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar=written.__name__.upper(),
            instance_from_str=lambda words: written.parse(words[0]),
            is_instance=lambda value: isinstance(value, written),
            str_from_instance=lambda value: [str(value)],
        )

    return rule

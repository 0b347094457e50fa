"""`gan evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gan.commands.console import asks_for_help, is_main_process, one_argument, say
from gan.data_config import DataConfig
from gan.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from gan.data import ImageData
    from gan.flags import Evaluate

_HOW = {
    "features": "feature network",
    "features_hash": "its hash",
    "features_accuracy": "its accuracy on held-out data",
    "resize": "resize filter",
    "fakes": "number of fakes",
    "images": "images",
    "images_fingerprint": "their fingerprint",
    "weights": "weights",
    "step": "step",
    "seed": "first seed",
    "truncation": "truncation",
    "kid_subset": "images in a subset of kid",
    "reals": "number of reals",
    "data": "real images",
    "split": "split of them",
    "data_fingerprint": "their fingerprint",
    "floor_of": "floor",
    "torch_fidelity": "torch-fidelity",
}
"""What makes numbers comparable, in words."""


def evaluate(words: list[str]) -> int:
    """Compare a generator, or images, with real ones.

    Args:
        words: after `gan evaluate`.

    Returns:
        The exit code.
    """
    what = Path(one_argument("evaluate", "a run, a folder or an npz", "runs/digits-001", words))
    default = DataConfig(data="") if asks_for_help(words) else _default(what)
    from gan.flags import Evaluate, parse

    arguments = parse(Evaluate, words, "gan evaluate RUN", Evaluate(default))
    if not arguments.options.data:
        raise ConfigError(f"--data: {what} is no run; say which real images to compare it with")
    from accelerate import Accelerator
    from torch import accelerator as hardware

    from gan import metrics
    from gan.results import held_out, metrics_cache

    accelerator = Accelerator(cpu=not hardware.is_available())
    with accelerator.main_process_first():  # one process prepares the data, the others find it
        fakes, reals, about = _opened(what, arguments)
        unseen = held_out(
            arguments.options, reals, "test" if arguments.split == "train" else "train"
        )
    entry = metrics.evaluate(
        fakes,
        reals,
        features=arguments.features,
        num=arguments.num,
        seed=arguments.seed,
        metrics=arguments.metrics,
        held_out=unseen,
        truncation=arguments.truncation,
        subset=arguments.kid_subset,
        about={**about, "split": arguments.split},
        cache=metrics_cache(),
        accelerator=accelerator,
        progress=True,
    )
    say(_table(entry))
    if is_main_process():
        path, replaced = _note(what, entry)
        say(f"noted in {path}{', in place of the same evaluation before' if replaced else ''}")
    return 0


def _default(what: Path) -> DataConfig:
    """How to open the real images, as far as a run knows it."""
    if not what.exists():
        raise ConfigError(f"{what} does not exist; give a run, a folder of images or an npz")
    if not (what / "config.yaml").is_file():
        return DataConfig(data="")
    from gan.state import saved_config

    config = saved_config(what)
    names = DataConfig.__dataclass_fields__
    return DataConfig(**{name: getattr(config, name) for name in names})


def _opened(
    what: Path, arguments: Evaluate
) -> tuple[nn.Module | ImageData, ImageData, dict[str, Any]]:
    """Fakes, real images of their shape, and what is to be noted of the fakes."""
    from gan.data import open_data
    from gan.results import chosen_generator

    options, opening = arguments.options, arguments.options.opening()
    if any((what / name).is_file() for name in ("config.yaml", "config.json")):
        generator, step = chosen_generator(what, arguments.checkpoint, arguments.weights)
        shape = tuple(generator.shape)  # type: ignore[arg-type]
        if len(shape) == 3:
            opening["resolution"] = opening["resolution"] or shape[1:]
            opening["channels"] = opening["channels"] or shape[0]
        reals = open_data(options.data, split=arguments.split, **opening)
        raw = arguments.weights == "generator"
        return generator, reals, {"weights": "raw" if raw else "ema", "step": step}
    given = [
        flag
        for flag, value, default in (
            ("--truncation", arguments.truncation, None),
            ("--checkpoint", arguments.checkpoint, "newest"),
            ("--weights", arguments.weights, "ema"),
            ("--seed", arguments.seed, 0),
        )
        if value != default
    ]
    if given:
        raise ConfigError(f"{given[0]}: {what} holds images, not a generator; leave it out")
    reals = open_data(options.data, split=arguments.split, **opening)
    same = {"resolution": reals.shape[1:], "channels": reals.shape[0], "labels": "none"}
    fakes = open_data(str(what), **opening | same)
    about = {"images": str(what), "images_fingerprint": fakes.fingerprint}
    return fakes, reals, about


def _table(entry: dict[str, Any]) -> str:
    """Numbers, and what makes them comparable, in columns."""
    floor = entry["floor"] or {}
    lines = [f"{'':<28}{'value':>12}{'floor' if floor else '':>16}".rstrip()]
    for name, value in entry["values"].items():
        best = f"{floor[name]:.4g}" if name in floor else ""
        lines.append(f"{name:<28}{value:>12.4g}{best:>16}".rstrip())
    if entry["nearest"] is not None:
        lines.append(f"{'distance to nearest real':<28}{entry['nearest']:>12.4g}{'1':>16}")
    lines += [
        f"  {words + ':':<31}{entry[key]}"
        for key, words in _HOW.items()
        if entry.get(key) is not None
    ]
    return "\n".join([*lines, *(f"  note: {note}" for note in entry["notes"])])


def _note(what: Path, entry: dict[str, Any]) -> tuple[Path, bool]:
    """Store an evaluation beside what it is of: where, and whether one like it was there."""
    from gan.metrics import record
    from gan.results import describe_generator, is_running
    from gan.state import saved_config

    is_run = (what / "config.yaml").is_file()
    generator = (what / "config.json").is_file()
    beside = what.with_name(f"{what.resolve().name}.metrics.json")
    path = what / "metrics.json" if is_run or generator else beside
    replaced = record(path, entry)
    if is_run:
        describe_generator(what, saved_config(what))
        if not is_running(what):  # TensorBoard would turn to the new file and leave the run's own
            _show(what, entry)
    return path, replaced


def _show(folder: Path, entry: dict[str, Any]) -> None:
    """Show the numbers among the run's curves, under a name that says how they were made."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for name, value in entry["values"].items():
            tag = f"evaluation/{name}_{entry['features']}_{entry['fakes']}"
            writer.add_scalar(tag, value, entry["step"])

"""`gan sample` and `gan interpolate`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gan.commands.console import numbers, place_for, run_argument, say
from gan.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

    from gan.data import ImageData
    from gan.flags import Interpolate, Sample


def sample(words: list[str]) -> int:
    """Draw samples.

    Args:
        words: after `gan sample`.

    Returns:
        The exit code.
    """
    folder = run_argument("sample", words)
    from gan.flags import Sample, parse

    arguments = parse(Sample, words, "gan sample RUN", Sample())
    seeds = _seeds(arguments)
    labels = None if arguments.labels is None else numbers("--labels", arguments.labels)
    if arguments.data is not None and not arguments.nearest:
        raise ConfigError(f"--data: {arguments.data} is used with --nearest only")
    if arguments.nearest and arguments.out.suffix.lower() in ("", ".zip", ".npz"):
        raise ConfigError(f"--nearest: gives a picture, but --out is {arguments.out}; use .png")
    place_for(arguments.out)
    from gan import gallery, sampling
    from gan.results import chosen_generator

    if arguments.out.suffix.lower() not in ("", ".zip", ".npz"):
        sampling.check_picture_name(arguments.out)
    if arguments.ema_width is None:
        generator, _ = chosen_generator(folder, arguments.checkpoint)
    else:
        from gan.power_ema import rebuild

        generator, distance = rebuild(folder, arguments.ema_width)
        say(f"average of width {arguments.ema_width:g}, off by {distance:.1%} of its profile")
    each = None if labels is None else [labels[i % len(labels)] for i in range(len(seeds))]
    if arguments.out.suffix.lower() in ("", ".zip", ".npz"):
        gallery.save_samples(
            arguments.out, generator, seeds, each, truncation=arguments.truncation, progress=True
        )
    else:
        data = _training_images(folder, arguments.data, generator) if arguments.nearest else None
        samples = sampling.sample(
            generator, seeds, each, truncation=arguments.truncation, progress=True
        )
        if data is not None:
            grid = gallery.nearest_picture(samples, data)
        else:
            columns = _columns(len(seeds), labels, int(generator.num_classes))  # type: ignore[arg-type]
            grid = sampling.picture(samples, columns)
        sampling.save_picture(arguments.out, grid)
    say(str(arguments.out))
    return 0


def _seeds(arguments: Sample) -> Sequence[int]:
    if arguments.seeds is not None:
        if (arguments.num, arguments.seed) != (64, 0):
            raise ConfigError("--seeds: give either --seeds, or --num and --seed")
        return numbers("--seeds", arguments.seeds)
    if arguments.num < 1:
        raise ConfigError(f"--num: {arguments.num} is below 1")
    if arguments.seed < 0:
        raise ConfigError(f"--seed: {arguments.seed} is negative")
    return range(arguments.seed, arguments.seed + arguments.num)


def _columns(count: int, labels: Sequence[int] | None, num_classes: int) -> int:
    from gan.sampling import grid_columns

    return grid_columns(count, num_classes if labels is None else len(labels))


def _training_images(folder: Path, source: str | None, generator: nn.Module) -> ImageData:
    """The images that a generator was trained on, as it makes them."""
    from gan.data import open_data
    from gan.data_config import DataConfig
    from gan.state import saved_config

    if source is None and not (folder / "config.yaml").is_file():
        raise ConfigError(f"--data: {folder} is no run; say which images it was trained on")
    shape = tuple(generator.shape)  # type: ignore[arg-type]
    if len(shape) != 3:
        raise ConfigError("--nearest: this generator makes points, not images")
    config = saved_config(folder) if source is None else DataConfig(data=source, labels="none")
    made = {"resolution": shape[1:], "channels": shape[0]}
    return open_data(config.data, **config.opening() | made)


def interpolate(words: list[str]) -> int:
    """Show the way from sample to sample.

    Args:
        words: after `gan interpolate`.

    Returns:
        The exit code.
    """
    folder = run_argument("interpolate", words)
    from gan.flags import Interpolate, parse

    arguments = parse(Interpolate, words, "gan interpolate RUN", Interpolate())
    seeds = numbers("--seeds", arguments.seeds)
    _check(arguments)
    from gan import gallery, sampling
    from gan.results import chosen_generator

    strip = arguments.out.suffix.lower() == ".png"
    frames = arguments.frames or (8 if strip else 24)
    images = gallery.interpolate(
        chosen_generator(folder, arguments.checkpoint)[0],
        seeds,
        frames=frames,
        label=arguments.label,
        truncation=arguments.truncation,
        loop=not strip,  # an animation starts again without a jump
    )
    if strip:
        # One row for each way, which begins with its seed; the last seed stands alone.
        sampling.save_picture(arguments.out, sampling.picture(images, min(frames, len(images))))
    else:
        shown = images if images.ndim == 4 else images[:, None]  # a point that walks
        gallery.save_animation(arguments.out, shown, fps=arguments.fps)
    say(str(arguments.out))
    return 0


def _check(arguments: Interpolate) -> None:
    if arguments.frames is not None and arguments.frames < 1:
        raise ConfigError(f"--frames: {arguments.frames} is below 1")
    if not 1 <= arguments.fps <= 100:
        raise ConfigError(f"--fps: {arguments.fps} is outside 1 to 100")
    if arguments.out.suffix.lower() not in (".png", ".gif", ".webp", ".mp4"):
        raise ConfigError(f"--out: {arguments.out} does not end in .png, .gif, .webp or .mp4")
    place_for(arguments.out)

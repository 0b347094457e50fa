"""`gan train` and `gan resume`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from gan.commands.console import asks_for_help, duration, interruptible, run_argument, say, size
from gan.config import Config
from gan.errors import CheckpointError, ConfigError
from gan.presets import PRESETS, preset_config

if TYPE_CHECKING:
    from gan.run import Run


def train(words: list[str]) -> int:
    """Train from a preset or a file.

    Args:
        words: after `gan train`.

    Returns:
        The exit code.
    """
    preset = words.pop(0) if words and not words[0].startswith("-") else None
    _refuse_the_flag_preset(words)
    base = _base(preset, words)
    from gan.flags import Train, parse

    arguments = parse(Train, words, "gan train", Train(base))
    with interruptible():
        from gan.loop import fit, start
        from gan.run import build

        run = build(arguments.options)
        if arguments.dry_run:
            say(_plan(run))
            return 0
        start(run)
        say(_one_line(run))
        return _finish(run, fit(run))


def resume(words: list[str]) -> int:
    """Go on with a run.

    Args:
        words: after `gan resume`.

    Returns:
        The exit code.
    """
    folder = run_argument("resume", words)
    from gan.flags import Resume, parse
    from gan.state import saved_config

    saved = Config() if asks_for_help(words) else saved_config(folder)
    options = parse(Resume, words, "gan resume RUN", Resume(saved)).options
    asked, own = ((each.runs_dir.resolve(), each.name) for each in (options, saved))
    if asked != own:
        raise ConfigError(
            f"--runs_dir, --name: {options.runs_dir / str(options.name)}, but a run goes on in its "
            f"own folder, {folder}; leave both out, or move the folder first"
        )
    with interruptible():
        from gan import state
        from gan.loop import fit
        from gan.results import is_running

        if is_running(folder):
            raise CheckpointError(f"{folder} is being trained by another process; stop that first")
        run = state.resume(folder, options)
        if run.step >= run.config.steps:
            say(f"{folder} is finished: {run.step} of {run.config.steps} steps; --steps goes on")
            return 0
        say(f"resuming from step {run.step}: {_one_line(run)}")
        return _finish(run, fit(run))


def _base(preset: str | None, words: list[str]) -> Config:
    """Options that the flags are laid over."""
    files = [
        word.partition("=")[2] or (words[i + 1] if i + 1 < len(words) else "")
        for i, word in enumerate(words)
        if word == "--config" or word.startswith("--config=")
    ]
    if preset is None and not asks_for_help(words):
        _refuse_a_late_preset(words)
    if any(word.partition("=")[0] == "--pairs" for word in words):
        raise ConfigError(
            "--pairs: gan train makes images out of nothing; examples/image_to_image.py makes "
            "images out of images"
        )
    if preset is not None and files:
        raise ConfigError(f"--config: give a preset ({preset}) or a file, not both")
    if files:
        # The file's run has its folder already; this one gets its own.
        return dataclasses.replace(Config.load(Path(files[-1])), name=None)
    if preset is not None:
        return preset_config(preset)
    if asks_for_help(words):
        return Config()
    if any(word.partition("=")[0] == "--data" for word in words):
        return _choice(words)
    raise ConfigError(
        f"preset: none given; presets: {', '.join(PRESETS)}; or give --data, and one is chosen"
    )


def _refuse_the_flag_preset(words: list[str]) -> None:
    for i, word in enumerate(words):
        flag, equals, value = word.partition("=")
        if flag == "--preset":
            name = value if equals else " ".join(words[i + 1 : i + 2])
            raise ConfigError(f"--preset: write the preset first: gan train {name} ...")


def _refuse_a_late_preset(words: list[str]) -> None:
    from gan.flags import Train
    from gan.words import flags_of, late_words

    late = [word for word in late_words(words, flags_of(Train)) if word in PRESETS]
    if late:
        others = list(words)
        others.remove(late[0])
        line = " ".join(["gan train", late[0], *others])
        raise ConfigError(f"preset: {late[0]} comes before the flags; write: {line}")


def _choice(words: list[str]) -> Config:
    """Options that the data and the machine suggest, said in a few lines."""
    from gan.choice import choose
    from gan.data import open_data
    from gan.flags import Train, parse

    asked = parse(Train, words, "gan train", Train(Config())).options
    given = any(word.partition("=")[0] == "--batch_size" for word in words)
    data = open_data(asked.data, **asked.opening())
    choice = choose(data, asked, batch_size=asked.batch_size if given else None)
    for reason in choice.reasons:
        say(reason)
    return choice.config


def _finish(run: Run, signal_number: int) -> int:
    if signal_number:
        say(f"stopped at step {run.step}, all saved; go on with: gan resume {run.folder}")
        return 128 + signal_number
    assert run.folder is not None
    say(
        f"samples:     {run.folder / 'samples' / f'step-{run.step:06d}.png'}\n"
        f"generator:   {run.folder / 'generator'}\n"
        f"watch it:    tensorboard --logdir {run.folder.parent}"
    )
    return 0


def _one_line(run: Run) -> str:
    from gan.networks import count_parameters

    config, processes = run.config, run.accelerator.num_processes
    classes = f", {run.num_classes} classes" if run.num_classes else ""
    penalties = "".join(f" + {penalty}" for penalty in config.penalties)
    loss = f"{config.loss} ({run.loss.at_chance:.3g} at chance){penalties}"
    return (
        f"{run.folder}: {len(run.data):,} {'x'.join(map(str, run.data.shape))} "
        f"from {config.data}{classes}; "
        f"{config.generator.family} generator {count_parameters(run.generator.raw):,} parameters, "
        f"{config.discriminator.family} discriminator "
        f"{count_parameters(run.discriminator.raw):,}; "
        f"{loss}; {config.steps:,} steps of {run.images_per_update} images on "
        f"{processes} x {run.accelerator.device.type}, {_precision(config)}"
    )


def _plan(run: Run) -> str:
    """Everything that would happen, with a time that was measured just now."""
    import yaml

    from gan.networks import count_parameters
    from gan.speed.projection import estimate

    config, accelerator = run.config, run.accelerator
    plan = estimate(run)
    rows = {
        "data": f"{config.data}: {len(run.data):,} of shape {tuple(run.data.shape)}, "
        + (f"{run.num_classes} classes" if run.num_classes else "without labels"),
        "generator": f"{config.generator.family}, "
        f"{count_parameters(run.generator.raw):,} parameters, "
        f"z ({config.generator.z_dim},) -> {tuple(run.data.shape)}",
        "discriminator": f"{config.discriminator.family}, "
        f"{count_parameters(run.discriminator.raw):,} parameters, images -> logits",
        "machine": f"{accelerator.num_processes} x {accelerator.device}, {_precision(config)}",
        "steps": f"{config.steps:,} of {config.n_critic} x {run.images_per_update} images "
        f"({config.batch_size} x {config.gradient_accumulation_steps} micro-batches x "
        f"{accelerator.num_processes} processes)",
        "time": f"about {duration(plan.seconds)} ({plan.seconds_per_step * 1000:.1f} ms a step, "
        "measured just now)",
        "disk": f"about {size(plan.disk)} at the end, {size(plan.checkpoint)} a checkpoint",
        "folder": str(config.runs_dir / (config.name or f"{config.preset}-<next number>")),
    }
    options = yaml.safe_dump(config.to_dict(), sort_keys=False)
    return options + "\n" + "\n".join(f"{name + ':':<15}{text}" for name, text in rows.items())


def _precision(config: Config) -> str:
    return "fp32" if config.mixed_precision == "no" else config.mixed_precision

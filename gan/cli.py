"""The command line: the only module that prints to a person or decides an exit code."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import gan
from gan.config import Config
from gan.errors import ConfigError, DivergenceError, GanError
from gan.presets import PRESETS, preset_config

if TYPE_CHECKING:
    from gan.run import Run

HELP = f"""\
usage: gan COMMAND [ARGUMENTS]

Train two networks against each other on Hugging Face Accelerate.

commands:
  train PRESET [--flags]          train from a preset; any option is a flag
  train --config FILE [--flags]   train from a run's config.yaml
  resume RUN [--flags]            go on from the newest complete checkpoint of a run folder
  sample RUN [--flags]            a grid of samples of a run or of an exported generator

presets:
{chr(10).join(f"  {name:<16}{preset.summary}" for name, preset in PRESETS.items())}

gan COMMAND --help lists the flags; gan --version prints the version.
Several processes: accelerate launch -m gan train ...  or  torchrun --nproc_per_node 2 -m gan ...
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: the words after `gan`; None: the process's own.

    Returns:
        The exit code: 0 done, 2 a mistake that the message explains, 3 training diverged,
        130 stopped by Ctrl-C, 143 stopped by SIGTERM.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if words[0] == "--version":
        print(f"gan-toolkit {gan.__version__}")
        return 0
    commands: dict[str, Callable[[list[str]], int]] = {
        "train": _train,
        "resume": _resume,
        "sample": _sample,
    }
    _log_to_stderr()
    try:
        if words[0] not in commands:
            raise GanError(f"{words[0]!r} is no command; commands: {', '.join(commands)}")
        return commands[words[0]](words[1:])
    except GanError as error:
        if _is_main_process():
            for line in str(error).splitlines():
                print(f"gan: error: {line}", file=sys.stderr)
        return 3 if isinstance(error, DivergenceError) else 2
    except KeyboardInterrupt:
        return 130


def _train(words: list[str]) -> int:
    preset = words.pop(0) if words and not words[0].startswith("-") else None
    base = _base(preset, words)
    from gan.flags import Train, parse

    arguments = parse(Train, words, "gan train", Train(base))
    from gan import build, fit, start

    run = build(arguments.options)
    if arguments.dry_run:
        _say(_plan(run))
        return 0
    start(run)
    _say(_one_line(run))
    return _finish(run, fit(run))


def _base(preset: str | None, words: list[str]) -> Config:
    """Options that the flags are laid over."""
    files = [
        word.partition("=")[2] or (words[i + 1] if i + 1 < len(words) else "")
        for i, word in enumerate(words)
        if word == "--config" or word.startswith("--config=")
    ]
    if preset is not None and files:
        raise ConfigError(f"--config: give a preset ({preset}) or a file, not both")
    if files:
        # The file's run has its folder already; this one gets its own.
        return dataclasses.replace(Config.load(Path(files[-1])), name=None)
    if preset is not None:
        return preset_config(preset)
    if _asks_for_help(words):
        return Config()
    raise ConfigError(f"preset: none given; presets: {', '.join(PRESETS)}")


def _resume(words: list[str]) -> int:
    folder = _run_argument("resume", words)
    from gan.flags import Resume, parse
    from gan.state import saved_config

    saved = Config() if _asks_for_help(words) else saved_config(folder)
    options = parse(Resume, words, "gan resume RUN", Resume(saved)).options
    from gan import fit, resume

    run = resume(folder, options)
    if run.step >= run.config.steps:
        _say(f"{folder} is finished: {run.step} of {run.config.steps} steps; --steps goes further")
        return 0
    _say(f"resuming from step {run.step}: {_one_line(run)}")
    return _finish(run, fit(run))


def _sample(words: list[str]) -> int:
    folder = _run_argument("sample", words)
    from gan.flags import Sample, parse

    arguments = parse(Sample, words, "gan sample RUN", Sample())
    if arguments.num < 1:
        raise ConfigError(f"--num: {arguments.num} is below 1")
    from gan import sampling
    from gan.state import load_averaged_generator

    generator = load_averaged_generator(folder)
    seeds = range(arguments.seed, arguments.seed + arguments.num)
    samples = sampling.sample(generator, seeds, progress=True)
    columns = sampling.grid_columns(len(samples), int(generator.num_classes))  # type: ignore[arg-type]
    sampling.save_picture(arguments.out, sampling.picture(samples, columns))
    _say(str(arguments.out))
    return 0


def _run_argument(command: str, words: list[str]) -> Path:
    if words and not words[0].startswith("-"):
        return Path(words.pop(0))
    if _asks_for_help(words):
        return Path("RUN")
    raise ConfigError(f"gan {command}: name the run folder, as in gan {command} runs/digits-001")


def _asks_for_help(words: list[str]) -> bool:
    return bool({"-h", "--help"} & set(words))


def _finish(run: Run, signal_number: int) -> int:
    if signal_number:
        _say(f"stopped at step {run.step}, all saved; go on with: gan resume {run.folder}")
        return 128 + signal_number
    assert run.folder is not None
    _say(
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
    return (
        f"{run.folder}: {len(run.data):,} {'x'.join(map(str, run.data.shape))} "
        f"from {config.data}{classes}; "
        f"{config.generator.family} generator {count_parameters(run.generator.raw):,} parameters, "
        f"{config.discriminator.family} discriminator "
        f"{count_parameters(run.discriminator.raw):,}; "
        f"{config.loss}{penalties}; {config.steps:,} steps of {run.images_per_update} images on "
        f"{processes} x {run.accelerator.device.type}, {_precision(config)}"
    )


def _plan(run: Run) -> str:
    """Everything that would happen, with a time that was measured just now."""
    import yaml

    from gan.loop import probe
    from gan.networks import count_parameters

    config, accelerator = run.config, run.accelerator
    seconds = probe(run)
    total = seconds * config.steps
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
        "time": f"about {_duration(total)} ({seconds * 1000:.1f} ms a step, measured just now)",
        "folder": str(config.runs_dir / (config.name or f"{config.preset}-<next number>")),
    }
    options = yaml.safe_dump(config.to_dict(), sort_keys=False)
    return options + "\n" + "\n".join(f"{name + ':':<15}{text}" for name, text in rows.items())


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _precision(config: Config) -> str:
    return "fp32" if config.mixed_precision == "no" else config.mixed_precision


def _say(text: str) -> None:
    if _is_main_process():
        print(text, flush=True)


def _is_main_process() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _log_to_stderr() -> None:
    """Messages of the library, above the progress bar; from the main process only."""

    class Console(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            from tqdm import tqdm

            tqdm.write(self.format(record), file=sys.stderr)

    logger = logging.getLogger("gan")
    logger.handlers = [Console()] if _is_main_process() else [logging.NullHandler()]
    logger.setLevel(logging.INFO)
    logger.propagate = False

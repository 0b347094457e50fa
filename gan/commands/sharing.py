"""`gan export` and `gan push`."""

from __future__ import annotations

from pathlib import Path

from gan.commands.console import asks_for_help, leading, place_for, run_argument, say
from gan.errors import ConfigError

_ENDINGS = {"onnx": ".onnx", "torchscript": ".pt"}


def export(words: list[str]) -> int:
    """Write a generator for other programs.

    Args:
        words: after `gan export`.

    Returns:
        The exit code.
    """
    folder = run_argument("export", words)
    from gan.flags import Export, parse

    arguments = parse(Export, words, "gan export RUN", Export())
    ending = _ENDINGS[arguments.format]
    place = folder / "generator" if (folder / "config.yaml").is_file() else folder
    out = arguments.out or place / f"generator{ending}"
    if out.suffix != ending:
        raise ConfigError(f"--out: {out} does not end in {ending}, as {arguments.format} does")
    place_for(out)
    from gan.portable import export_generator
    from gan.results import chosen_generator

    generator, _ = chosen_generator(folder, arguments.checkpoint)
    difference = export_generator(generator, out)
    say(f"{out}: its pictures differ by at most {difference:.1e}, in units of [-1, 1]")
    return 0


def push(words: list[str]) -> int:
    """Upload a generator to the hub.

    Args:
        words: after `gan push`.

    Returns:
        The exit code.
    """
    arguments = leading(words)
    if asks_for_help(words):
        arguments = ["RUN", "OWNER/NAME"]
    if len(arguments) != 2:
        raise ConfigError(
            "gan push: name the run and its place, as in gan push runs/digits-001 owner/name"
        )
    folder, name = Path(arguments[0]), arguments[1]
    from gan.flags import Push, parse

    public = parse(Push, words, "gan push RUN OWNER/NAME", Push()).public
    from gan.export import push_generator
    from gan.results import describe_generator
    from gan.state import saved_config

    if (folder / "config.yaml").is_file():
        describe_generator(folder, saved_config(folder), name)
    say(push_generator(folder, name, private=not public))
    return 0

"""`gan data`."""

from __future__ import annotations

from pathlib import Path

from gan.commands.console import one_argument, place_for, say
from gan.data_config import DataConfig
from gan.errors import ConfigError


def data(words: list[str]) -> int:
    """Report what is in a data source, and draw a contact sheet of what training would see.

    Args:
        words: after `gan data`.

    Returns:
        The exit code: 0 where training could start, else 2.
    """
    source = one_argument("data", "a source", "path/to/images", words)
    from gan.flags import Data, parse

    arguments = parse(Data, words, "gan data SOURCE", Data(DataConfig(data=source)))
    options = arguments.options
    if options.data != source:
        raise ConfigError(f"--data: {options.data!r}, but the source is {source!r}; leave it out")
    _check_place(arguments.out, Path(source).expanduser())
    from gan.data import contact_sheet, describe

    report = describe(source, **options.opening(), split=arguments.split, pairs=arguments.pairs)
    say(report.text())
    if report.data is not None:
        contact_sheet(report.data, arguments.out)
        say(f"  contact sheet: {arguments.out}")
    return 2 if report.problem else 0


def _check_place(out: Path, source: Path) -> None:
    place_for(out)
    folder = out.absolute().parent
    if not folder.is_dir():
        raise ConfigError(f"--out: {out} cannot be: there is no folder {folder}; make it first")
    if source.is_dir() and folder.resolve().is_relative_to(source.resolve()):
        raise ConfigError(
            f"--out: {out} would lie within {source}, and count as one of its images; write it "
            f"elsewhere, as in --out {source.resolve().parent / out.name}"
        )

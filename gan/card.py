"""The page that goes with a generator: what it is, how it is used, made and measured."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml


def model_card(
    generator: Mapping[str, Any],
    *,
    settings: Mapping[str, Any] | None = None,
    measured: Sequence[Mapping[str, Any]] = (),
    picture: str | None = None,
    name: str = "generator",
) -> str:
    """Text of a `README.md`, with the header that the hub reads.

    Args:
        generator: its `config.json`, as `gan.export.generator_config` gives it.
        settings: everything that decided the run, as `Config.to_dict` gives it.
        measured: evaluations, as `metrics.json` holds them: each with `values` and what makes
            them comparable.
        picture: file of a grid of samples, beside the text.
        name: what the code calls the generator: its folder, or its name on the hub.

    Returns:
        The text, in Markdown.
    """
    header = {
        "library_name": "gan-toolkit",
        "tags": ["gan", "image-generation", generator["family"]],
        "pipeline_tag": "unconditional-image-generation",
    }
    parts = [
        f"---\n{yaml.safe_dump(header, sort_keys=False)}---",
        f"# {name.rpartition('/')[2]}",
        _summary(generator, (settings or {}).get("data")),
    ]
    if picture:
        parts.append(f"![samples]({picture})")
    parts += ["## Use", _code("python", _usage(name))]
    if names := generator.get("class_names"):
        parts += ["## Classes", ", ".join(f"{i} {each}" for i, each in enumerate(names))]
    if measured:
        parts += ["## Measured", *map(_table, measured)]
    if settings:
        parts += ["## Settings", _code("yaml", yaml.safe_dump(dict(settings), sort_keys=False))]
    return "\n\n".join(parts) + "\n"


def save_card(
    folder: Path, *, settings: Mapping[str, Any], measured: Sequence[Mapping[str, Any]], name: str
) -> None:
    """Write the page beside a generator, with its `samples.png` if there is one.

    Args:
        folder: of the exported generator.
        settings: see `model_card`.
        measured: see `model_card`.
        name: see `model_card`.

    Raises:
        OSError: the folder cannot be read or written.
    """
    generator = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    picture = "samples.png" if (folder / "samples.png").is_file() else None
    card = model_card(generator, settings=settings, measured=measured, picture=picture, name=name)
    temporary = folder / f".{os.getpid()}-README.md"
    temporary.write_text(card, encoding="utf-8")
    os.replace(temporary, folder / "README.md")


def _summary(generator: Mapping[str, Any], data: str | None) -> str:
    options = generator["options"]
    classes = f" and one of {options['num_classes']} classes" if options.get("num_classes") else ""
    images = " x ".join(map(str, generator["shape"]))
    steps = f" for {generator['step']} steps" if "step" in generator else ""
    trained = f" Trained on `{data}`{steps}." if data else ""
    return (
        f"A `{generator['family']}` generator: {options.get('z_dim', 'some')} standard normal "
        f"numbers{classes} to images of {images} (channels x height x width) in [-1, 1].{trained}"
    )


def _usage(name: str) -> str:
    return (
        "import gan\n"
        "from gan.sampling import picture, save_picture\n\n"
        f"generator = gan.load_generator({name!r})\n"
        "images = gan.sample(generator, seeds=range(64))\n"
        'save_picture("samples.png", picture(images))'
    )


def _code(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _table(entry: Mapping[str, Any]) -> str:
    left_out = ("values", "floor", "notes", "time")
    how = ", ".join(
        f"{key.replace('_', ' ')} {value}"
        for key, value in entry.items()
        if key not in left_out and value is not None
    )
    floor = entry.get("floor") or {}
    rows = ["| metric | value | floor |", "|---|---|---|"]
    for metric, value in entry["values"].items():
        best = f"{floor[metric]:.4g}" if metric in floor else ""
        rows.append(f"| {metric} | {value:.4g} | {best} |")
    notes = [f"Note: {note}" for note in entry.get("notes", ())]
    return "\n\n".join(["\n".join(rows), f"How: {how}.", *notes])

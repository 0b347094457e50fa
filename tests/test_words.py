"""Every mistake on a command line is one sentence, and what is right passes."""

from __future__ import annotations

import dataclasses

import pytest

from gan.config import Config
from gan.errors import ConfigError
from gan.flags import Bench, Compare, Data, Evaluate, Export, Interpolate, Resume, Sample, Train
from gan.flags import parse as parse_flags
from gan.presets import PRESETS, preset_config
from gan.serial import flatten
from gan.words import flags_of, late_words, problems, sort_words

TRAIN = flags_of(Train)


def wrong(*words: str) -> list[str]:
    return list(problems(words, TRAIN, "gan train"))


def test_the_flags_of_a_command() -> None:
    assert {"config", "dry_run", "steps", "penalties", "data"} <= TRAIN.keys()
    assert {"generator.lr", "generator.z_dim", "discriminator.clip_weights"} <= TRAIN.keys()
    assert not {"options", "options.steps", "generator"} & TRAIN.keys()
    switches = {name for name, flag in TRAIN.items() if flag.switch}
    assert {"dry_run", "conditional", "compile"} <= switches
    assert "steps" not in switches
    several = {name for name, flag in TRAIN.items() if flag.several}
    assert {"penalties", "ema_widths", "generator.hidden", "discriminator.options"} <= several
    assert not several & {"dry_run", "gamma", "augment_strength", "generator.lr"}


@pytest.mark.parametrize(
    "words",
    [
        "--steps 3",
        "--steps=3",
        "--seed -1",
        "--batch-size 3",
        "--no_conditional --compile --dry_run",
        "--no-conditional",
        "--penalties",
        "--penalties r1/4 r2=0..1,to=50% --gamma 1..0.1,cosine",
        "--generator.hidden 3 4 --discriminator.hidden 5",
        "--generator.lr 1e-3 --generator.clip_norm None --sample_every None",
        "--generator.options attention=16 --augment_strength 0..1",
        "--generator.options=attention=16 group_size=2",
        "--name None --runs_dir /tmp/x --ema_widths .05 0.1",
        "--data - --mixed_precision no",
    ],
)
def test_what_is_right_passes(words: str) -> None:
    assert wrong(*words.split()) == []


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        ("--stepz 3", ["--stepz: there is no such flag; did you mean --steps?"]),
        ("--lr 3", ["--lr: there is no such flag; did you mean --generator.lr?"]),
        ("-q", ["-q: there is no such flag; gan train --help lists them"]),
        ("--steps", ["--steps: its value is missing; give a whole number"]),
        ("--steps --seed 1", ["--steps: its value is missing; give a whole number"]),
        ("--steps=", ["--steps: '' is not a whole number"]),
        ("--steps 1e4", ["--steps: '1e4' is not a whole number"]),
        ("--save_every never", ["--save_every: 'never' is not a whole number, or None"]),
        ("--ada_speed fast", ["--ada_speed: 'fast' is not a number"]),
        ("--ada_speed inf", ["--ada_speed: inf is not finite"]),
        ("--mixed_precision fp8", ["--mixed_precision: 'fp8' is not one of no, fp16, bf16"]),
        ("--augment", ["--augment: its value is missing; give one of none, diffaugment, ada, r3g"]),
        ("--penalties r1 r/x", ["--penalties: 'r/x' is no penalty; write NAME, NAME=WEIGHT or N"]),
        ("--penalties r1/0", ["--penalties: 'r1/0' is no penalty; write NAME, NAME=WEIGHT or NAME=W"
        "EIGHT/EVERY, with EVERY from 1"]),
        ("--generator.hidden 3 b c", ["--generator.hidden: 'b' ", "--generator.hidden: 'c' "]),
        ("--generator.options x", ["--generator.options: 'x' is no option; write NAME=VALUE, as"]),
        ("--steps 3 4", ["'4' belongs to no flag; --steps takes one value"]),
        ("--compile yes", ["'yes' belongs to no flag; --compile takes no value"]),
        ("one --steps 3", ["'one' belongs to no flag; write --FLAG VALUE"]),
        ("--steps 3 --steps=5", ["--steps: it is there twice, 3 and 5; give it once"]),
        ("--steps 3 --steps 3", ["--steps: it is there twice, 3 and 3; give it once"]),
        ("--compile --no_compile", ["--compile: it is there twice; give it once"]),
        ("--batch_size 3 --batch-size 4", ["--batch_size: it is there twice, 3 and 4; give it "]),
        ("--penalties r1 --penalties r2", ["--penalties: it is there twice, r1 and r2; give all "]),
        ("--steps x --stepz 3 y", ["--steps: 'x' is", "--stepz: there is no", "'y' belongs to no"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(words: str, sentences: list[str]) -> None:
    found = wrong(*words.split())
    assert len(found) == len(sentences)
    assert all(one.startswith(other) for one, other in zip(found, sentences, strict=True))


def test_words_are_dealt_to_their_flags() -> None:
    words = "a --steps 3 b --penalties r1 r2 --dry-run c"
    given, strays = sort_words(words.split(), TRAIN)
    assert [(each.name, each.values) for each in given] == [
        ("steps", ["3"]),
        ("penalties", ["r1", "r2"]),
        ("dry_run", []),
    ]
    assert strays == [("a", ""), ("b", "steps"), ("c", "dry_run")]
    assert late_words(["--name", "ring", "--steps", "3", "ring"], TRAIN) == ["ring"]
    assert late_words(["--name", "ring"], TRAIN) == []


@pytest.mark.parametrize("kind", [Bench, Compare, Data, Evaluate, Export, Interpolate, Sample])
def test_no_two_flags_of_a_command_share_a_name(kind: type) -> None:
    assert all(name and "__" not in name for name in flags_of(kind))


@pytest.mark.parametrize("preset", PRESETS)
def test_every_option_of_a_preset_is_read_back_from_its_flags(preset: str) -> None:
    config, words = preset_config(preset), []
    for name, value in flatten(config.to_dict()).items():
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no_{name}")
        elif isinstance(value, list):
            words += [f"--{name}", *map(str, value)]
        else:
            words += [f"--{name}", str(value)]
    assert parse_flags(Resume, words, "gan resume RUN", Resume(Config())).options == config


def test_what_only_the_parser_finds_is_one_line_without_a_box() -> None:
    @dataclasses.dataclass(frozen=True)
    class Strange:
        pair: tuple[int, int] = (1, 2)
        """Two numbers; no field of ours is one."""

    with pytest.raises(ConfigError) as caught:
        parse_flags(Strange, ["--pair", "1"], "gan strange", Strange())
    assert "pair" in str(caught.value)
    assert str(caught.value).isascii()
    assert "\n" not in str(caught.value)

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import yaml

from gan.config import VERSION, Config, Penalty
from gan.data import open_data
from gan.data_config import DataConfig
from gan.errors import ConfigError
from gan.flags import Train, parse
from gan.presets import PRESETS, preset_config
from gan.schedules import Schedule


def test_a_seed_is_what_numpy_takes() -> None:
    assert Config(seed=2**32 - 1).check().seed == 2**32 - 1
    with pytest.raises(ConfigError, match="seed: 4294967296 is above 4294967295"):
        Config(seed=2**32).check()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_possible_and_survives_its_file(name: str, tmp_path: Path) -> None:
    config = preset_config(name).check()
    config.save(tmp_path / "config.yaml")
    assert Config.load(tmp_path / "config.yaml") == config


def test_every_kind_of_value_survives_the_file(tmp_path: Path) -> None:
    config = Config.from_dict(
        {
            "gamma": "150..15,cosine,from=10%,to=20M,warmup=5k",
            "penalties": ["r1=0.3..0.03/16", "wgan-gp=10", "r2"],
            "mixed_precision": "no",
            "data_root": "some/where",
            "generator": {"lr": 1 / 3, "hidden": [], "clip_norm": None},
        }
    )
    config.save(tmp_path / "config.yaml")
    assert Config.load(tmp_path / "config.yaml") == config
    assert config.generator.lr.start == 1 / 3


def test_what_yaml_reads_as_another_type_is_understood(tmp_path: Path) -> None:
    # YAML reads 1e-4 as text and a bare `no` as false.
    (tmp_path / "c.yaml").write_text(
        "mixed_precision: no\nsteps: 1e3\ngenerator: {lr: 1e-4, beta1: 0}\n", encoding="utf-8"
    )
    config = Config.load(tmp_path / "c.yaml")
    assert config.mixed_precision == "no"
    assert config.steps == 1000
    assert config.generator.lr == Schedule(1e-4)


def test_unknown_fields_and_wrong_types_are_reported_together() -> None:
    values = {
        "stepz": 3,
        "generator": {"lr": "fast", "wdth": 1, "hidden": [8, "wide"]},
        "loss": "mse",
        "batch_size": 2.5,
        "conditional": "maybe",
    }
    with pytest.raises(ConfigError) as error:
        Config.from_dict(values)
    problems = error.value.problems
    assert problems[0] == "stepz: unknown option; did you mean steps?"
    assert problems[1].startswith("generator.lr: 'fast' is no schedule; write a number, or START")
    assert problems[2] == "generator.wdth: unknown option; did you mean generator.width?"
    assert problems[3] == "generator.hidden: expected int, got 'wide'"
    assert problems[4].startswith("loss: 'mse' is not one of minimax, non-saturating, hinge")
    assert problems[5] == "batch_size: expected int, got 2.5"
    assert problems[6] == "conditional: expected bool, got 'maybe'"
    assert len(problems) == 7


def test_impossible_values_are_reported_together() -> None:
    config = Config.from_dict(
        {
            "steps": 0,
            "n_critic": -1,
            "resolution": "8.5",
            "channels": 2,
            "conditional": True,
            "labels": "none",
            "name": "../x",
            "penalties": ["r1", "r1/4", "r3"],
            "generator": {"beta1": 1.2, "lr": 0, "z_dim": 0},
            "discriminator": {"clip_norm": 0, "beta2": "0.9..1"},
        }
    )
    with pytest.raises(ConfigError) as error:
        config.check()
    assert error.value.problems == [
        "steps: 0 is below 1",
        "n_critic: -1 is below 1",
        "resolution: '8.5' is no size in pixels; write 64 or HEIGHTxWIDTH",
        "channels: 2 is not one of 1, 3, 4",
        "conditional: the networks need class labels, but labels is none",
        "name: '../x' is not the name of a folder",
        "penalties: 'r3' is not one of r1, r2, wgan-gp, wgan-gp-one-sided, dragan, "
        "zero-centered-gp, lecam, consistency, balanced-consistency",
        "penalties: r1 r1/4 r3 names one of them twice",
        "generator.lr: 0 is not above 0",
        "generator.beta1: 1.2 is outside [0, 1); R3GAN uses 0, DCGAN 0.5",
        "generator.z_dim: 0 is below 1",
        "discriminator.beta2: 0.9..1 is outside [0, 1); R3GAN uses 0.9..0.99",
        "discriminator.clip_norm: 0 is not above 0; None turns it off",
    ]


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    text = yaml.safe_dump({"version": VERSION + 1, "something_new": 1})
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"version: {VERSION + 1} is newer than this"):
        Config.load(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read .*c.yaml: No such file"),
        (b"\xff\xfe\x00\x01", "cannot read .*c.yaml: it is not a text file"),
        (b"a: [1", "c.yaml is not YAML: "),
        (b"- 1\n- 2\n", "c.yaml holds no options"),
        (b"!!python/object/apply:os.system ['true']", "c.yaml is not YAML: "),
    ],
)
def test_a_file_that_is_no_config(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "c.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        Config.load(tmp_path / "c.yaml")


def test_an_unknown_preset_names_the_nearest_and_all() -> None:
    with pytest.raises(ConfigError) as error:
        preset_config("digit")
    assert str(error.value).startswith("preset: 'digit' is unknown; did you mean digits? presets: ")
    assert all(name in str(error.value) for name in PRESETS)


@pytest.mark.parametrize(
    ("text", "penalty"),
    [
        ("r1", Penalty("r1")),
        ("r1/16", Penalty("r1", None, 16)),
        ("wgan-gp=10", Penalty("wgan-gp", Schedule(10.0))),
        ("r2=2..0.2,cosine/4", Penalty("r2", Schedule(2.0, 0.2, "cosine"), 4)),
    ],
)
def test_penalties_are_written_and_read(text: str, penalty: Penalty) -> None:
    assert Penalty.parse(text) == penalty
    assert str(penalty) == text


@pytest.mark.parametrize("text", ["", "r1/0", "r1/", "r1=", "R1", "r1=x", "r1/4/4"])
def test_what_is_no_penalty_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no (penalty|schedule)"):
        Penalty.parse(text)


def test_differences_are_named_with_dots() -> None:
    mine = Config.from_dict({"steps": 5, "generator": {"lr": 1e-3}})
    assert mine.differences(Config()) == {
        "steps": (5, 10_000),
        "generator.lr": (1e-3, 2e-4),
    }


def test_opening_is_exactly_what_open_data_takes() -> None:
    taken = set(inspect.signature(open_data).parameters) - {"source", "split", "pairs"}
    options = DataConfig(resolution="8x16", cache=False, background=(1, 2, 3), fit="pad").opening()
    assert set(options) == taken
    assert options["resolution"] == (8, 16)
    assert options["no_cache"] is True
    assert (options["background"], options["fit"]) == ((1, 2, 3), "pad")
    with pytest.raises(ConfigError, match=r"^resolution: '8by8' is no size in pixels; write 64 or"):
        DataConfig(resolution="8by8").opening()


def test_another_network_is_not_built_with_the_options_of_the_former() -> None:
    base = preset_config("fashion-mnist")
    assert (base.generator.width, base.generator.hidden) == (32, (256,))
    own = Config.from_dict({"generator": {"module": "own:G"}}, base).generator
    assert (own.width, own.hidden, own.norm, own.options) == (None, None, None, ())
    assert (own.lr, own.z_dim) == (base.generator.lr, base.generator.z_dim)
    other = {"discriminator": {"family": "mlp", "hidden": [8]}}
    config = Config.from_dict(other, base)
    assert (config.discriminator.width, config.discriminator.hidden) == (None, (8,))
    assert config.generator == base.generator
    assert Config.from_dict({"discriminator": {"family": "dcgan"}}, base) == base


def test_on_the_command_line_too() -> None:
    words = ["--generator.module=own:G", "--discriminator.family", "mlp"]
    base = Train(preset_config("fashion-mnist"))
    options = parse(Train, [*words, "--discriminator.hidden", "8"], "gan train", base).options
    assert (options.generator.module, options.generator.width) == ("own:G", None)
    assert (options.discriminator.width, options.discriminator.hidden) == (None, (8,))


def test_weights_below_zero_and_widths_that_are_there_twice() -> None:
    with pytest.raises(ConfigError) as error:
        Config.from_dict({"penalties": ["r1=1..-1"], "ema_widths": [0.05, 0.1, 0.05]}).check()
    assert error.value.problems == [
        "penalties: the weight of r1=1..-1 goes below 0",
        "ema_widths: 0.05 0.1 0.05 names one of them twice",
    ]

"""The page of a generator says what is so, and nothing else."""

from __future__ import annotations

from typing import Any

import yaml

from gan.card import model_card

GENERATOR: dict[str, Any] = {
    "family": "mlp",
    "shape": [1, 8, 8],
    "options": {"z_dim": 32, "num_classes": 2},
    "class_names": ["zero", "one"],
    "step": 400,
}


def test_the_header_is_what_the_hub_reads() -> None:
    _, header, _ = model_card(GENERATOR).split("---\n", 2)
    assert yaml.safe_load(header) == {
        "library_name": "gan-toolkit",
        "tags": ["gan", "image-generation", "mlp"],
        "pipeline_tag": "unconditional-image-generation",
    }


def test_it_says_what_the_generator_is() -> None:
    card = model_card(GENERATOR, settings={"data": "digits", "steps": 400}, name="me/digits")
    assert "\n# digits\n" in card
    assert (
        "A `mlp` generator: 32 standard normal numbers and one of 2 classes to images of 1 x 8 x 8 "
        "(channels x height x width) in [-1, 1]. Trained on `digits` for 400 steps.\n"
    ) in card
    assert "generator = gan.load_generator('me/digits')\n" in card
    assert "0 zero, 1 one\n" in card
    assert "```yaml\ndata: digits\nsteps: 400\n```" in card


def test_what_is_not_known_is_left_out() -> None:
    card = model_card({"family": "mlp", "shape": [3, 4, 4], "options": {"z_dim": 5}})
    assert "5 standard normal numbers to images of 3 x 4 x 4" in card
    for absent in ("## Measured", "## Settings", "## Classes", "![samples]", "None", "Trained"):
        assert absent not in card


def test_measured_numbers_come_with_their_conditions() -> None:
    entry = {"values": {"fid": 12.3456, "kid": 0.5}, "floor": {"fid": 1.0}, "notes": ["copies?"]}
    measured = [entry | {"features": "self", "fakes": 5000, "seed": None}]
    card = model_card(GENERATOR, measured=measured, picture="samples.png")
    assert "| fid | 12.35 | 1 |\n| kid | 0.5 |  |\n\nHow: features self, fakes 5000.\n" in card
    assert "\nNote: copies?\n" in card
    assert "![samples](samples.png)" in card

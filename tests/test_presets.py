"""The presets that repeat a paper, held against the numbers that its authors published."""

import dataclasses

import pytest
import torch

from gan.networks import count_parameters
from gan.parts import networks_for
from gan.presets import preset_config

PUBLISHED = {
    # size, classes, processes, images a step, images in all, gamma at the end, and the heights of
    # the feature maps that stay in fp32
    "r3gan-cifar10": (32, 10, 8, 512, 250e6, 0.005, {4}),
    "r3gan-ffhq64": (64, 0, 8, 256, None, 0.2, {4}),
    "r3gan-ffhq256": (256, 0, 8, 256, None, 15.0, {4, 8, 16}),
    "stylegan2-64": (64, 0, 1, 32, 25e6, 0.0002 * 64**2 / 32, {4}),
    "stylegan2-256": (256, 0, 8, 64, 25e6, 1.0, {4, 8, 16}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_preset_trains_as_long_and_as_regularised(name):
    _, classes, processes, batch, images, gamma, _ = PUBLISHED[name]
    config = preset_config(name)
    assert config.batch_size * processes == batch
    assert config.conditional == (classes > 0)
    assert config.gamma.values[-1] == pytest.approx(gamma)
    if images is not None:
        assert abs(config.steps * batch - images) < batch


@pytest.mark.parametrize(
    ("name", "millions"), [("r3gan-ffhq256", (23.058, 23.010)), ("stylegan2-256", (24.767, 24.001))]
)
def test_a_published_preset_has_the_published_size(name, millions):
    with torch.device("meta"):
        *networks, _ = networks_for(preset_config(name), (3, 256, 256), 0)
    assert tuple(round(count_parameters(network) / 1e6, 3) for network in networks) == millions


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_preset_keeps_its_low_resolutions_in_fp32(name):
    size, classes, *_, in_fp32 = PUBLISHED[name]
    config = preset_config(name)
    narrow = {"width": 8, "max_width": 8}
    config = dataclasses.replace(
        config,
        generator=dataclasses.replace(config.generator, **narrow),
        discriminator=dataclasses.replace(config.discriminator, **narrow),
    )
    generator, discriminator, options = networks_for(config, (3, size, size), classes)
    labels = torch.zeros(1, dtype=torch.int64) if classes else None
    for network, x in (
        (generator, torch.randn(1, options["z_dim"])),
        (discriminator, torch.randn(1, 3, size, size)),
    ):
        seen = set()
        for layer in network.modules():
            if hasattr(layer, "weight") and layer.weight.shape[2:] == (3, 3):
                layer.register_forward_hook(
                    lambda _, __, y, seen=seen: seen.add((y.shape[2], y.dtype))
                )
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            network(x, labels)
        assert {height for height, kind in seen if kind == torch.float32} == in_fp32
        assert (size, torch.bfloat16) in seen


def test_the_average_ramps_up_in_the_automatic_settings_of_stylegan2_only():
    assert preset_config("stylegan2-64").ema_rampup == 0.05
    assert preset_config("stylegan2-256").ema_rampup is None

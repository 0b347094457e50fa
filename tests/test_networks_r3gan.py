from itertools import pairwise

import pytest
import torch

from gan.errors import GanError
from gan.networks import build_discriminator, build_generator, count_parameters


def r3gan(shape, **options):
    with torch.device("meta"):
        return build_generator("r3gan", shape, **options), build_discriminator(
            "r3gan", shape, **options
        )


def r3gan_parameters(widths, image_channels=3):
    """What both networks share: the blocks, the changes of width, the way from or to pixels."""
    blocks = sum(2 * (4 * c * c + 288 * c + 4 * c) for c in widths)
    changes = sum(a * b for a, b in pairwise(widths) if a != b)
    return blocks + changes + image_channels * widths[-1]


def test_r3gan_has_the_papers_parameters_for_ffhq_256():
    generator, discriminator = r3gan((3, 256, 256))
    shared = r3gan_parameters([768, 768, 768, 768, 384, 192, 96])
    assert count_parameters(generator) == shared + 16 * 768 + 64 * 768
    assert count_parameters(discriminator) == shared + 16 * 768 + 768
    # The paper gives 23.058M and 23.010M for its configuration E.
    assert round(count_parameters(generator) / 1e6, 3) == 23.058
    assert round(count_parameters(discriminator) / 1e6, 3) == 23.010


def test_r3gan_has_the_papers_structure_at_the_other_resolutions():
    generator, discriminator = r3gan((3, 32, 32), width=768, num_classes=10)
    shared = r3gan_parameters([768] * 4)
    assert count_parameters(generator) == shared + 16 * 768 + 2 * 64 * 768 + 10 * 64
    assert count_parameters(discriminator) == shared + 16 * 768 + 64 * 768 + 10 * 64
    generator, discriminator = r3gan((3, 64, 64), width=384)
    shared = r3gan_parameters([768] * 4 + [384])
    assert count_parameters(generator) == shared + 16 * 768 + 64 * 768
    assert count_parameters(discriminator) == shared + 16 * 768 + 768
    groups = [layer.mix.groups for layer in generator.layers if hasattr(layer, "mix")]
    assert groups == [96] * 8 + [48] * 2
    imagenet, _ = r3gan((3, 32, 32), width=1536, max_width=1536, group_size=32, num_classes=1000)
    assert {layer.mix.groups for layer in imagenet.layers if hasattr(layer, "mix")} == {96}


def test_r3gan_starts_with_identities_of_the_papers_scale():
    discriminator = build_discriminator("r3gan", (3, 16, 16), width=64)
    blocks = [layer for layer in discriminator.layers if hasattr(layer, "mix")]
    assert len(blocks) == 6  # two at 16, 8 and 4 pixels
    gain = (2 / 1.04) ** 0.5 * 6**-0.25
    for block in blocks:
        x = torch.randn(2, block.widen.in_channels, 4, 4)
        assert torch.equal(block(x), x)
        inner = block.mix.in_channels
        assert block.widen.weight.std().item() == pytest.approx(gain * (2 / inner) ** 0.5, rel=0.05)
        assert block.mix.weight.std().item() == pytest.approx(gain / (9 * 16) ** 0.5, rel=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 0}, "generator.depth: 0 is below 1"),
        ({"group_size": 0}, "generator.group_size: 0 is below 1"),
        (
            {"width": 12, "max_width": 12},
            "generator.width: 12 channels are 24 inside a block, which is no multiple of the "
            "group_size 16; use a width that makes it one, or another group_size",
        ),
    ],
)
def test_r3gan_options_that_cannot_be(options, message):
    with pytest.raises(GanError) as error:
        build_generator("r3gan", (3, 16, 16), **options)
    assert str(error.value) == message


LOW, FULL = torch.bfloat16, torch.float32


def precisions(build, low_precision, x):
    """Height and type of what every convolution gives, in order, and the type after the linear."""
    network = build("r3gan", (3, 16, 16), width=4, depth=1, low_precision=low_precision)
    seen, linear = [], []
    for layer in network.modules():
        if isinstance(layer, torch.nn.Conv2d):
            layer.register_forward_hook(lambda _, __, y: seen.append((y.shape[2], y.dtype)))
    network.linear.register_forward_hook(lambda _, __, y: linear.append(y.dtype))
    with torch.autocast("cpu", LOW):
        network(x)
    return seen, linear[0]


@pytest.mark.parametrize(
    ("low_precision", "convolutions", "linear"),
    [
        # Three at 4 pixels; from the next on the change of width comes before the doubling.
        (1, [(4, FULL)] * 4 + [(8, FULL)] * 3 + [(8, LOW)] + [(16, LOW)] * 4, FULL),
        (2, [(4, FULL)] * 3 + [(4, LOW)] + [(8, LOW)] * 4 + [(16, LOW)] * 4, FULL),
        (3, [(4, LOW)] * 4 + [(8, LOW)] * 4 + [(16, LOW)] * 4, LOW),
        (7, [(4, LOW)] * 4 + [(8, LOW)] * 4 + [(16, LOW)] * 4, LOW),
        (None, [(4, LOW)] * 4 + [(8, LOW)] * 4 + [(16, LOW)] * 4, LOW),
    ],
)
def test_which_layers_of_the_generator_follow_autocast(low_precision, convolutions, linear):
    seen = precisions(build_generator, low_precision, torch.randn(2, 64))
    assert seen == (convolutions, linear)


@pytest.mark.parametrize(
    ("low_precision", "convolutions", "linear"),
    [
        # One from the pixels and three at 16; the change of width comes after the halving.
        (1, [(16, LOW)] * 4 + [(8, LOW)] + [(8, FULL)] * 3 + [(4, FULL)] * 4, FULL),
        (2, [(16, LOW)] * 4 + [(8, LOW)] * 4 + [(4, LOW)] + [(4, FULL)] * 3, FULL),
        (3, [(16, LOW)] * 4 + [(8, LOW)] * 4 + [(4, LOW)] * 4, LOW),
        (None, [(16, LOW)] * 4 + [(8, LOW)] * 4 + [(4, LOW)] * 4, LOW),
    ],
)
def test_which_layers_of_the_discriminator_follow_autocast(low_precision, convolutions, linear):
    seen = precisions(build_discriminator, low_precision, torch.randn(2, 3, 16, 16))
    assert seen == (convolutions, linear)


def test_blocks_in_low_precision_add_in_low_precision():
    generator = build_generator("r3gan", (3, 16, 16), width=4, max_width=4, low_precision=2)
    seen = []
    for layer in generator.layers:
        if hasattr(layer, "mix"):
            layer.register_forward_hook(lambda _, __, y: seen.append(y.dtype))
    with torch.autocast("cpu", LOW):
        generator(torch.randn(2, 64))
    assert seen == [FULL] * 2 + [LOW] * 4

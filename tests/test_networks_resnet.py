import re

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gan.errors import GanError
from gan.networks import build_discriminator, build_generator, count_parameters


def test_resnet_is_sngan_at_32():
    generator = build_generator("resnet", (3, 32, 32), width=256, max_width=256)
    discriminator = build_discriminator("resnet", (3, 32, 32), width=128, max_width=128, flat=2)
    conv, norm, shortcut = 256 * 256 * 9 + 256, 2 * 256, 256 * 256 + 256
    first, last = 128 * 4 * 4 * 256 + 4 * 4 * 256, 256 * 3 * 9 + 3
    assert count_parameters(generator) == first + 3 * (2 * (conv + norm) + shortcut) + norm + last
    assert count_parameters(generator) == 4_276_739
    conv, shortcut = 128 * 128 * 9 + 128, 128 * 128 + 128
    first = 3 * 128 * 9 + 128 + conv + 3 * 128 + 128
    assert count_parameters(discriminator) == first + 6 * conv + shortcut + 128 + 1
    assert count_parameters(discriminator) == 1_053_825


def test_resnet_has_the_papers_feature_maps_at_128():
    with torch.device("meta"):
        generator = build_generator("resnet", (3, 128, 128))
        discriminator = build_discriminator("resnet", (3, 128, 128))
        assert generator.first(torch.zeros(2, 128)).shape == (2, 1024, 4, 4)
        assert [block.conv2.out_channels for block in generator.blocks] == [1024, 512, 256, 128, 64]
        widths = [block.conv2.out_channels for block in discriminator.blocks]
        assert widths == [64, 128, 256, 512, 1024, 1024]
        assert discriminator.blocks(torch.zeros(2, 3, 128, 128)).shape == (2, 1024, 4, 4)


def test_resnet_generator_normalises_each_class_by_its_own_gain_and_bias():
    generator = build_generator("resnet", (1, 8, 8), width=4, num_classes=2)
    block = generator.blocks[0]
    assert_close(block.norm1.gain, torch.ones(2, 8, 1, 1))
    with torch.no_grad():
        block.norm1.gain[1], block.norm1.bias[1] = 2.0, 0.5
    x = torch.randn(6, 8, 4, 4)
    first = block.norm1(x, torch.zeros(6, dtype=torch.int64))
    second = block.norm1(x, torch.ones(6, dtype=torch.int64))
    assert_close(first.mean((0, 2, 3)), torch.zeros(8), atol=1e-5, rtol=0)
    assert_close(first.std((0, 2, 3), correction=0), torch.ones(8), atol=1e-3, rtol=0)
    assert_close(second, 2 * first + 0.5)


def test_attention_starts_as_the_identity_and_mixes_the_whole_map():
    attention = build_generator("resnet", (1, 16, 16), width=16, attention=8).blocks[1]
    x = torch.randn(1, 32, 8, 8, requires_grad=True)
    assert torch.equal(attention(x), x)
    nn.init.ones_(attention.strength)
    (gradient,) = torch.autograd.grad(attention(x)[0, :, 0, 0].sum(), x)
    assert (gradient.abs().sum(1) > 0).float().mean() > 0.2  # through max pooling, 1 in 4 and more


def test_attention_is_softmax_of_the_products_of_queries_and_keys():
    attention = build_discriminator(
        "resnet", (1, 16, 16), width=8, attention=8, norm="none"
    ).blocks[1]
    nn.init.ones_(attention.strength)
    x = torch.randn(2, 8, 8, 8)
    query, key, value = (layer(x) for layer in (attention.query, attention.key, attention.value))
    pool = torch.nn.functional.max_pool2d
    fused = torch.nn.functional.scaled_dot_product_attention(
        *(part.flatten(2).transpose(1, 2) for part in (query, pool(key, 2), pool(value, 2))),
        scale=1.0,
    )
    expected = x + attention.out(fused.transpose(1, 2).reshape(2, 4, 8, 8))
    assert_close(attention(x), expected)


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (build_generator, {"attention": 4}, "no feature map is 4 pixels high; there are 8, 16, 32"),
        (build_discriminator, {"attention": 2}, "there are 16, 8, 4"),
        (
            build_discriminator,
            {"flat": 4},
            "discriminator.flat: 4 is above 3, the doublings of 32x",
        ),
        (build_discriminator, {"flat": 0}, "discriminator.flat: 0 is below 1"),
        (build_discriminator, {"norm": "batch"}, "'batch' is not one of spectral, none"),
    ],
)
def test_resnet_options_that_cannot_be(build, options, message):
    with pytest.raises(GanError, match=re.escape(message)):
        build("resnet", (3, 32, 32), width=4, **options)

import copy
import re
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gan.errors import GanError
from gan.networks import (
    FAMILIES,
    build_discriminator,
    build_generator,
    check_shape,
    count_parameters,
)
from gan.networks.interface import doublings, ladder
from gan.networks.r3gan import Double, Halve
from gan.penalties import r1_penalty

# Small enough for a test: options of each generator and of each discriminator. What follows a +
# is a variant of the family, tried at one shape only.
TINY = {
    "dcgan": ({"z_dim": 6, "width": 4}, {"width": 4}),
    "dcgan+spectral": ({"z_dim": 6, "width": 4, "norm": "none"}, {"width": 4, "norm": "spectral"}),
    "mlp": ({"z_dim": 6, "hidden": (8,)}, {"hidden": (8,)}),
    "mlp+spectral": ({"z_dim": 6, "hidden": (8,)}, {"hidden": (8,), "norm": "spectral"}),
    "resnet": ({"z_dim": 6, "width": 4}, {"width": 4}),
    "resnet+attention": (
        {"z_dim": 6, "width": 4, "attention": 16, "norm": "spectral"},
        {"width": 4, "attention": 8, "norm": "none", "flat": 2},
    ),
    "r3gan": ({"z_dim": 6, "width": 4, "depth": 1}, {"width": 4, "depth": 1}),
    "r3gan+groups": (
        {"z_dim": 6, "width": 4, "max_width": 4, "group_size": 2},
        {"width": 4, "max_width": 4, "group_size": 2, "embedding": 6},
    ),
}
SHAPES = [(1, 16, 16), (3, 8, 8), (3, 16, 24), (4, 32, 32), (1, 28, 28), (3, 12, 20)]
IMAGE_FAMILIES = [name for name in FAMILIES if name != "mlp"]


def tiny(variant, shape, num_classes=0):
    family, (generator, discriminator) = variant.partition("+")[0], TINY[variant]
    return (
        build_generator(family, shape, num_classes=num_classes, **generator),
        build_discriminator(family, shape, num_classes=num_classes, **discriminator),
    )


def inputs(generator, batch=4):
    labels = torch.arange(batch) % generator.num_classes if generator.num_classes else None
    return torch.randn(batch, generator.z_dim), labels


def test_every_family_is_tested_here():
    assert {variant.partition("+")[0] for variant in TINY} == set(FAMILIES)


# --- every family, every shape -------------------------------------------------------------------


@pytest.mark.parametrize("num_classes", [0, 3])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("family", FAMILIES)
def test_makes_and_judges_images_of_the_shape(family, shape, num_classes):
    generator, discriminator = tiny(family, shape, num_classes)
    z, labels = inputs(generator)
    images = generator(z, labels)
    assert images.shape == (4, *shape)
    assert discriminator(images, labels).shape == (4,)
    assert (generator.z_dim, generator.num_classes, generator.shape) == (6, num_classes, shape)
    assert (discriminator.num_classes, discriminator.shape) == (num_classes, shape)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("num_classes", [0, 3])
@pytest.mark.parametrize("family", TINY)
def test_two_steps_move_every_weight(family, num_classes, precision):
    generator, discriminator = tiny(family, (3, 16, 16), num_classes)
    before = [copy.deepcopy(network.state_dict()) for network in (generator, discriminator)]
    optimizers = [torch.optim.Adam(net.parameters(), 1e-3) for net in (generator, discriminator)]
    for _ in range(2):
        z, labels = inputs(generator, 6)
        real = torch.rand(6, 3, 16, 16) * 2 - 1
        with torch.autocast("cpu", precision, enabled=precision != torch.float32):
            fake = generator(z, labels)
            difference = discriminator(real, labels) - discriminator(fake, labels)
        loss = difference.float().square().mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    for network, old in zip((generator, discriminator), before, strict=True):
        for name, parameter in network.named_parameters():
            assert parameter.isfinite().all(), name
            if not name.endswith("head.linear.bias"):  # cancels in the difference
                assert not torch.equal(parameter, old[name]), name


@pytest.mark.parametrize("num_classes", [0, 3])
@pytest.mark.parametrize("family", TINY)
def test_penalties_differentiate_the_discriminator_twice(family, num_classes):
    generator, discriminator = tiny(family, (3, 16, 16), num_classes)
    _, labels = inputs(generator)
    images = torch.rand(4, 3, 16, 16)
    r1_penalty(lambda x: discriminator(x, labels), images).mean().backward()
    gradients = [p.grad for p in discriminator.parameters() if p.grad is not None]
    assert sum(gradient.abs().sum() for gradient in gradients) > 0
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("family", TINY)
def test_no_activation_works_in_place(family):
    for network in tiny(family, (3, 16, 16)):
        assert not [name for name, layer in network.named_modules() if getattr(layer, "inplace", 0)]


@pytest.mark.parametrize("family", TINY)
def test_every_class_has_its_own_images_and_logits(family):
    generator, discriminator = tiny(family, (3, 16, 16), num_classes=3)
    with torch.no_grad():  # families may start with a last layer of zeros
        for parameter in [*generator.parameters(), *discriminator.parameters()]:
            parameter.add_(0.1 * torch.randn_like(parameter))
    z = torch.randn(1, 6).repeat(3, 1)
    images = generator.eval()(z, torch.arange(3))
    assert not torch.equal(images[0], images[1])
    assert not torch.equal(images[1], images[2])
    logits = discriminator.eval()(images[:1].repeat(3, 1, 1, 1), torch.arange(3))
    assert len(set(logits.tolist())) == 3


@pytest.mark.parametrize("num_classes", [0, 3])
@pytest.mark.parametrize("family", TINY)
def test_in_eval_mode_an_image_does_not_depend_on_its_batch(family, num_classes):
    generator, _ = tiny(family, (3, 16, 16), num_classes)
    z, labels = inputs(generator)
    generator.eval()
    alone = [
        generator(z[i : i + 1], None if labels is None else labels[i : i + 1]) for i in range(4)
    ]
    assert_close(generator(z, labels), torch.cat(alone), atol=1e-6, rtol=0)


@pytest.mark.parametrize("family", TINY)
def test_copies_and_saved_weights_are_the_same_network(family):
    generator, discriminator = tiny(family, (3, 16, 16), num_classes=3)
    z, labels = inputs(generator)
    generator(z, labels)
    discriminator(generator(z, labels).detach(), labels)
    fresh_generator, fresh_discriminator = tiny(family, (3, 16, 16), num_classes=3)
    fresh_generator.load_state_dict(generator.state_dict())
    fresh_discriminator.load_state_dict(discriminator.state_dict())
    images = generator.eval()(z, labels)
    logits = discriminator.eval()(images, labels)
    for other in (copy.deepcopy(generator), fresh_generator.eval()):
        assert torch.equal(other(z, labels), images)
    for other in (copy.deepcopy(discriminator), fresh_discriminator.eval()):
        assert torch.equal(other(images, labels), logits)


@pytest.mark.parametrize("family", TINY)
def test_the_same_seed_gives_the_same_weights(family):
    networks = []
    for _ in range(2):
        torch.manual_seed(5)
        networks.append(tiny(family, (3, 16, 16), num_classes=3))
    for first, second in zip(*networks, strict=True):
        for name, value in first.state_dict().items():
            assert torch.equal(value, second.state_dict()[name]), name


@pytest.mark.parametrize("family", TINY)
def test_images_lie_in_the_range_where_the_family_bounds_them(family):
    generator, _ = tiny(family, (3, 16, 16))
    images = generator(100 * torch.randn(4, 6))
    assert images.isfinite().all()
    if family.partition("+")[0] in ("dcgan", "mlp", "resnet"):
        assert images.abs().max() <= 1


# --- what a network refuses ----------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_inputs_that_do_not_fit_are_refused(family):
    generator, discriminator = tiny(family, (3, 16, 16))
    z, images = torch.zeros(4, 6), torch.zeros(4, 3, 16, 16)
    with pytest.raises(ValueError, match=r"^z has shape \(4, 5\); expected \(batch, 6\)$"):
        generator(torch.zeros(4, 5))
    with pytest.raises(ValueError, match=r"^z has shape \(4, 6, 1, 1\); expected \(batch, 6\)$"):
        generator(z[:, :, None, None])
    with pytest.raises(ValueError, match=r"shape \(4, 1, 16, 16\); expected \(batch, 3, 16, 16\)$"):
        discriminator(torch.zeros(4, 1, 16, 16))
    for network, x in ((generator, z), (discriminator, images)):
        with pytest.raises(ValueError, match=r"^labels were given to a network without classes"):
            network(x, torch.zeros(4, dtype=torch.int64))


@pytest.mark.parametrize("family", FAMILIES)
def test_labels_that_do_not_fit_are_refused(family):
    for network, x in zip(
        tiny(family, (3, 16, 16), num_classes=3),
        (torch.zeros(4, 6), torch.zeros(4, 3, 16, 16)),
        strict=True,
    ):
        with pytest.raises(
            ValueError, match=r"^a network of 3 classes needs labels, shape \(4,\)$"
        ):
            network(x)
        with pytest.raises(
            ValueError, match=r"shape \(4, 1\) and type torch.int64; expected \(4,\)"
        ):
            network(x, torch.zeros(4, 1, dtype=torch.int64))
        with pytest.raises(
            ValueError, match=r"type torch.float32; expected \(4,\) and torch.int64"
        ):
            network(x, torch.zeros(4))


# --- the table -----------------------------------------------------------------------------------


def test_an_unknown_family_names_the_nearest():
    with pytest.raises(GanError) as error:
        build_generator("dcgam", (3, 16, 16))
    assert str(error.value) == (
        f"family: 'dcgam' is unknown; did you mean dcgan? families: {', '.join(FAMILIES)}"
    )


def test_an_option_that_the_family_does_not_take():
    with pytest.raises(GanError) as error:
        build_generator("mlp", (2,), z_dim=2, width=8)
    assert str(error.value) == (
        "generator.width: the family mlp takes no such option; "
        "its generator takes z_dim, hidden, norm, num_classes"
    )
    with pytest.raises(GanError, match=r"discriminator\.z_dim: the family dcgan takes no such opt"):
        build_discriminator("dcgan", (3, 16, 16), z_dim=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "generator.width: 0 is below 1"),
        ({"max_width": 0}, "generator.max_width: 0 is below 1"),
        ({"z_dim": 0}, "generator.z_dim: 0 is below 1"),
        ({"num_classes": -1}, "generator.num_classes: -1 is below 0"),
        ({"hidden": (8, 0)}, "generator.hidden: 0 is below 1"),
        ({"norm": "layer"}, "generator.norm: 'layer' is not one of batch, none"),
        ({"init": "zeros"}, "generator.init: 'zeros' is not one of dcgan, default"),
    ],
)
def test_an_option_with_a_value_that_cannot_be(options, message):
    with pytest.raises(GanError) as error:
        build_generator("dcgan", (3, 16, 16), **options)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("size", "nearest"),
    [
        ((0, 0), "8x8"),
        ((1, 1), "8x8"),
        ((7, 7), "8x8"),
        ((-4, -4), "8x8"),
        ((418, 418), "416x416 and 432x432"),
        ((1000, 1000), "992x992 and 1024x1024"),
        ((9, 100), "8x100 and 10x100"),
        ((7, 30), "8x30"),
        ((64, 97), "64x96 and 64x100"),
    ],
)
@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_a_resolution_that_cannot_be_made_names_the_nearest(family, size, nearest):
    with pytest.raises(GanError) as error:
        check_shape(family, (3, *size))
    assert str(error.value) == (
        f"{family}: resolution {size[0]}x{size[1]} cannot be made by doubling, at least once, a "
        f"feature map of 4x4 or more and at most 1024 pixels; nearest: {nearest}"
    )
    for name in nearest.split(" and "):
        check_shape(family, (3, *map(int, name.split("x"))))
    for build in (build_generator, build_discriminator):
        with pytest.raises(GanError, match=f"nearest: {nearest}"):
            build(family, (3, *size))


@pytest.mark.parametrize("shape", [(2,), (16, 16), (0, 16, 16), (3, 8.5, 8.5)])
@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_a_shape_that_is_none_of_an_image(family, shape):
    with pytest.raises(GanError, match=r"this family makes images, \(channels, height, width\)"):
        check_shape(family, shape)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((8, 8), (1, (4, 4))),
        ((12, 12), (1, (6, 6))),
        ((20, 20), (2, (5, 5))),
        ((28, 28), (2, (7, 7))),
        ((48, 48), (3, (6, 6))),
        ((64, 64), (4, (4, 4))),
        ((64, 96), (4, (4, 6))),
        ((96, 64), (4, (6, 4))),
        ((100, 100), (2, (25, 25))),
        ((1024, 1024), (8, (4, 4))),
    ],
)
def test_resolutions_are_doublings_of_the_smallest_base(size, expected):
    assert doublings((3, *size)) == expected


def test_channels_double_as_the_resolution_halves():
    assert ladder(64, None, 4) == [512, 256, 128, 64]
    assert ladder(96, 768, 7) == [768, 768, 768, 768, 384, 192, 96]
    assert ladder(64, 32, 2) == [32, 32]


def test_count_parameters_counts_each_number_once():
    shared = nn.Linear(3, 4)
    assert count_parameters(nn.Sequential(shared, nn.BatchNorm1d(4), shared)) == 16 + 8


# --- DCGAN ---------------------------------------------------------------------------------------


def test_dcgan_is_the_papers_network_at_64():
    generator = build_generator("dcgan", (3, 64, 64))
    discriminator = build_discriminator("dcgan", (3, 64, 64))
    up = [layer for layer in generator.layers if isinstance(layer, nn.ConvTranspose2d)]
    down = [layer for layer in discriminator.features if isinstance(layer, nn.Conv2d)]
    assert generator.layers[1].unflattened_size == (1024 // 2, 4, 4)
    assert [layer.out_channels for layer in up] == [256, 128, 64, 3]
    assert [layer.out_channels for layer in down] == [64, 128, 256, 512]
    kernels = 16 * (100 * 512 + 512 * 256 + 256 * 128 + 128 * 64 + 64 * 3)
    assert count_parameters(generator) == kernels + 2 * (512 + 256 + 128 + 64) + 3
    kernels = 16 * (3 * 64 + 64 * 128 + 128 * 256 + 256 * 512 + 512)
    assert count_parameters(discriminator) == kernels + 64 + 2 * (128 + 256 + 512) + 1


def test_dcgan_starts_as_the_paper_says():
    for network in tiny("dcgan", (3, 64, 64)):
        weights = [
            layer.weight.flatten()
            for layer in network.modules()
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear)
        ]
        assert torch.cat(weights).std().item() == pytest.approx(0.02, rel=0.03)
        assert torch.cat(weights).mean().item() == pytest.approx(0, abs=1e-3)
    convolution = build_discriminator("dcgan", (3, 16, 16), init="default").features[0]
    assert convolution.weight.std().item() == pytest.approx(1 / 12, rel=0.2)  # U(±1 / sqrt(48))


def test_the_networks_of_the_fashion_mnist_preset():
    generator = build_generator(
        "dcgan", (1, 28, 28), z_dim=64, width=16, hidden=(256,), num_classes=10
    )
    discriminator = build_discriminator(
        "dcgan", (1, 28, 28), width=16, hidden=(256,), norm="none", num_classes=10
    )
    assert count_parameters(generator) == 429_409
    assert count_parameters(discriminator) == 412_977
    kinds = [type(layer).__name__ for layer in generator.layers]
    assert " ".join(kinds) == (
        "Linear BatchNorm1d ReLU Linear Unflatten BatchNorm2d ReLU "
        "ConvTranspose2d BatchNorm2d ReLU ConvTranspose2d Tanh"
    )
    kinds = [type(layer).__name__ for layer in discriminator.features]
    assert " ".join(kinds) == "Conv2d LeakyReLU Conv2d LeakyReLU Flatten Linear LeakyReLU"
    # torch's own start, but N(0, 0.02) for the embedding of the classes
    assert discriminator.features[5].weight.abs().max() <= 1568**-0.5
    assert discriminator.features[5].weight.abs().max() > 0.99 * 1568**-0.5
    assert discriminator.head.embedding.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_dcgan_makes_no_checkerboard():
    generator = build_generator("dcgan", (1, 32, 32), z_dim=1, width=1, norm="none")
    for layer in generator.layers:
        if hasattr(layer, "weight"):
            nn.init.constant_(layer.weight, 0.1)
            nn.init.zeros_(layer.bias)
    image = generator(torch.ones(1, 1))[0, 0]
    interior = image[8:-8, 8:-8]
    assert 0 < interior[0, 0] < 0.9  # not flattened by tanh
    assert_close(interior, interior[0, 0].expand_as(interior), atol=1e-7, rtol=0)


def test_dcgan_norm_none_and_max_width():
    generator = build_generator("dcgan", (3, 32, 32), width=8, max_width=16, norm="none")
    discriminator = build_discriminator("dcgan", (3, 32, 32), width=8, max_width=16, norm="none")
    for network in (generator, discriminator):
        assert not [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
        assert all(layer.bias is not None for layer in network.modules() if hasattr(layer, "bias"))
    widths = [layer.in_channels for layer in generator.layers if hasattr(layer, "in_channels")]
    assert widths == [16, 16, 8]


@pytest.mark.parametrize("family", ["dcgan", "mlp"])
def test_spectral_norm_makes_every_layer_a_contraction_and_survives_two_forwards(family):
    options = TINY[family][1] | {"norm": "spectral", "num_classes": 3}
    discriminator = build_discriminator(family, (1, 8, 8), **options)
    labels = torch.tensor([0, 1])
    for _ in range(50):
        loss = discriminator(torch.randn(2, 1, 8, 8), labels) - discriminator(
            torch.randn(2, 1, 8, 8), labels
        )
    loss.mean().backward()
    discriminator.eval()
    layers = [layer for layer in discriminator.modules() if hasattr(layer, "parametrizations")]
    assert len(layers) == 3
    for layer in layers:
        largest = torch.linalg.matrix_norm(layer.weight.flatten(1), ord=2).item()
        assert largest == pytest.approx(1, abs=0.02)
    vectors = {k: v.clone() for k, v in discriminator.named_buffers()}
    images = torch.randn(2, 1, 8, 8)
    assert torch.equal(discriminator(images, labels), discriminator(images, labels))
    assert all(torch.equal(v, vectors[k]) for k, v in discriminator.named_buffers())


# --- MLP -----------------------------------------------------------------------------------------


def test_the_networks_of_the_digits_preset():
    generator = build_generator("mlp", (1, 8, 8), z_dim=32, hidden=(128, 256), num_classes=10)
    discriminator = build_discriminator("mlp", (1, 8, 8), hidden=(256, 128), num_classes=10)
    assert count_parameters(generator) == 55_360
    assert count_parameters(discriminator) == 50_945
    kinds = [type(layer).__name__ for layer in generator.layers]
    assert " ".join(kinds) == (
        "Linear BatchNorm1d ReLU Linear BatchNorm1d ReLU Linear Unflatten Tanh"
    )
    kinds = [type(layer).__name__ for layer in discriminator.features]
    assert " ".join(kinds) == "Flatten Linear LeakyReLU Linear LeakyReLU"


def test_mlp_makes_points_anywhere_in_the_plane():
    generator = build_generator("mlp", (2,), z_dim=4, hidden=(8,), norm="none")
    discriminator = build_discriminator("mlp", (2,), hidden=(8,))
    points = generator(1000 * torch.randn(16, 4))
    assert points.shape == (16, 2)
    assert points.abs().max() > 1
    assert discriminator(points).shape == (16,)
    with pytest.raises(ValueError, match=r"shape \(16, 3\); expected \(batch, 2\)"):
        discriminator(torch.zeros(16, 3))


def test_mlp_without_hidden_layers_is_linear():
    generator = build_generator("mlp", (2,), z_dim=2, hidden=())
    z = torch.randn(3, 2)
    differences = [b - a for a, b in pairwise(generator(z * k) for k in range(3))]
    assert_close(differences[0], differences[1])


@pytest.mark.parametrize("shape", [(), (0,), (1, 7, 13), (5,)])
def test_mlp_takes_every_shape_that_there_is(shape):
    if shape and min(shape) > 0:
        check_shape("mlp", shape)
        assert build_generator("mlp", shape)(torch.randn(2, 32)).shape == (2, *shape)
    else:
        with pytest.raises(GanError, match="every size must be a whole number above 0"):
            check_shape("mlp", shape)


# --- ResNet --------------------------------------------------------------------------------------


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


# --- R3GAN ---------------------------------------------------------------------------------------


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


def filtered(x, transposed):
    kernel = torch.tensor([1.0, 2.0, 1.0])
    kernel = (kernel[:, None] * kernel / 16).expand(x.shape[1], 1, 3, 3)
    if transposed:
        y = nn.functional.conv_transpose2d(x, 4 * kernel, stride=2, groups=x.shape[1])
        return y[:, :, :-1, :-1]
    return nn.functional.conv2d(x, kernel, stride=2, padding=1, groups=x.shape[1])


def test_r3gan_resamples_by_the_filter_1_2_1():
    x = torch.randn(2, 3, 4, 6)
    assert_close(Double()(x), filtered(x, transposed=True))
    assert_close(Halve()(x), filtered(x, transposed=False))
    ones = torch.ones(1, 1, 8, 8)
    assert torch.equal(Double()(ones)[:, :, 1:, 1:], torch.ones(1, 1, 15, 15))
    assert torch.equal(Halve()(ones)[:, :, 1:, 1:], torch.ones(1, 1, 3, 3))


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

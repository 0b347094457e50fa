import copy

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
from gan.networks.resampling import blur, double, halve
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
    "r3gan+precision": (
        {"z_dim": 6, "width": 4, "depth": 1, "low_precision": 1},
        {"width": 4, "depth": 1, "low_precision": 1},
    ),
    "stylegan2": (
        {"z_dim": 6, "width": 4, "style_dim": 8, "mapping_layers": 2},
        {"width": 4},
    ),
    "stylegan2+precision": (
        {"z_dim": 6, "width": 4, "style_dim": 8, "low_precision": 1, "clamp": 256.0},
        {"width": 4, "low_precision": 1, "clamp": 256.0},
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
            logits = torch.cat([discriminator(real, labels), discriminator(fake, labels)])
        loss = logits.float().square().mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    for network, old in zip((generator, discriminator), before, strict=True):
        for name, parameter in network.named_parameters():
            assert parameter.isfinite().all(), name
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
    assert (images[0] - images[1]).abs().max() > 1e-3
    assert (images[1] - images[2]).abs().max() > 1e-3
    logits = discriminator.eval()(images[:1].repeat(3, 1, 1, 1), torch.arange(3))
    assert logits.unique(sorted=True).diff().min() > 1e-5
    assert len(logits.unique()) == 3


@pytest.mark.parametrize("num_classes", [0, 3])
@pytest.mark.parametrize("family", TINY)
def test_in_eval_mode_an_image_does_not_depend_on_its_batch(family, num_classes):
    generator, _ = tiny(family, (3, 16, 16), num_classes)
    z, labels = inputs(generator)
    z = z.double()
    generator.double().eval()
    alone = [
        generator(z[i : i + 1], None if labels is None else labels[i : i + 1]) for i in range(4)
    ]
    assert_close(generator(z, labels), torch.cat(alone), atol=1e-12, rtol=0)


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


# --- resampling ----------------------------------------------------------------------------------

FILTERS = {1: [1.0, 1.0], 2: [1.0, 2.0, 1.0], 3: [1.0, 3.0, 3.0, 1.0]}


@pytest.mark.parametrize("boxes", FILTERS)
def test_resampling_is_convolution_with_the_filter(boxes):
    taps = torch.tensor(FILTERS[boxes])
    kernel = (taps[:, None] * taps / taps.sum() ** 2).expand(3, 1, -1, -1)
    x = torch.randn(2, 3, 4, 6)
    assert_close(blur(x, boxes), nn.functional.conv2d(x, kernel, groups=3))
    before, after = min(boxes - 1, 1), max(boxes - 2, 0)
    padded = nn.functional.pad(x, (before, after, before, after))
    assert_close(halve(x, boxes), nn.functional.conv2d(padded, kernel, stride=2, groups=3))
    spread = nn.functional.conv_transpose2d(x, 4 * kernel, stride=2, groups=3)
    start = boxes // 3
    assert_close(double(x, boxes), spread[:, :, start : start + 8, start : start + 12])


# --- spectral norm -------------------------------------------------------------------------------


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

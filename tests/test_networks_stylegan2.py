import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gan.errors import GanError
from gan.networks import build_discriminator, build_generator, count_parameters
from gan.networks.resampling import blur, double, halve


def stylegan2(shape=(3, 16, 16), **options):
    tiny = {"z_dim": 6, "width": 4, "style_dim": 8, "mapping_layers": 2}
    return build_generator("stylegan2", shape, **tiny | options)


def test_stylegan2_has_the_published_parameters_at_256():
    with torch.device("meta"):
        generator = build_generator("stylegan2", (3, 256, 256))
        discriminator = build_discriminator("stylegan2", (3, 256, 256))
    # The networks that Karras et al. (arXiv:2006.06676) train at this size: 24.767M and 24.001M.
    assert count_parameters(generator) == 24_767_458
    assert count_parameters(discriminator) == 24_001_089
    assert generator.synthesis.num_styles == 14
    assert count_parameters(generator.mapping) == 8 * (512 * 512 + 512)


@pytest.mark.parametrize("upsample", [False, True])
def test_modulation_is_a_kernel_for_each_image(upsample):
    layers = [layer for layer in stylegan2().modules() if hasattr(layer, "demodulate")]
    conv = next(each for each in layers if each.demodulate and each.upsample == upsample).double()
    x = torch.randn(3, conv.weight.shape[1], 4, 4, dtype=torch.float64)
    w = torch.randn(3, 8, dtype=torch.float64)
    expected = []
    for image, style in zip(x, conv.style(w), strict=True):
        kernel = conv.scale * conv.weight * style[:, None, None]
        kernel = kernel / (kernel.square().sum((1, 2, 3), keepdim=True) + 1e-8).sqrt()
        if upsample:
            y = nn.functional.conv_transpose2d(image[None], kernel.transpose(0, 1), stride=2)
            y = 4 * blur(nn.functional.pad(y, (1, 1, 1, 1)), 3)
        else:
            y = nn.functional.conv2d(image[None], kernel, padding=1)
        expected.append(y)
    # The 1e-8 is added to another size of the kernel, so they agree to fp32's rounding only.
    assert_close(conv(x, w), torch.cat(expected), atol=1e-6, rtol=1e-6)


def test_demodulated_feature_maps_have_unit_variance_whatever_the_style():
    conv = stylegan2(width=64).synthesis.convolutions[0].conv
    x = torch.randn(2, conv.weight.shape[1], 32, 32)
    for scale in (0.1, 10.0):
        y = conv(x, scale * torch.randn(2, 8))[:, :, 1:-1, 1:-1]
        assert y.std().item() == pytest.approx(1, rel=0.05)


def test_a_latent_is_one_image_in_eval_mode_and_many_in_training():
    generator = stylegan2()
    z = torch.randn(2, 6)
    for layer in generator.synthesis.convolutions:
        nn.init.ones_(layer.strength)
    assert not torch.equal(generator(z), generator(z))
    generator.eval()
    assert torch.equal(generator(z), generator(z))


def test_noise_is_added_to_every_convolution_in_training():
    generator = stylegan2(style_mixing=0)
    z = torch.randn(2, 6)
    assert torch.equal(generator(z), generator(z))  # its strength is learned from zero
    for layer in generator.synthesis.convolutions:
        nn.init.ones_(layer.strength)
        assert not torch.equal(generator(z), generator(z))
        nn.init.zeros_(layer.strength)


def test_style_mixing_changes_the_fine_styles_and_keeps_the_coarse_ones():
    generator = stylegan2(style_mixing=1.0)
    seen = []
    generator.synthesis.forward = lambda styles: seen.append(styles)
    z = torch.randn(64, 6)
    generator(z)
    kept = (seen[0] == generator.mapping(z)[:, None]).all(2)  # (batch, layers)
    coarse = kept.sum(1)
    assert all(row[:n].all() for row, n in zip(kept, coarse, strict=True))
    assert set(coarse.tolist()) == set(range(1, generator.synthesis.num_styles))
    generator.style_mixing = 0.25
    generator(z)
    share = (seen[1] == generator.mapping(z)[:, None]).all(2).all(1).float().mean()
    assert 0.5 < share < 0.95
    generator.eval()
    generator(z)
    assert torch.equal(seen[2], generator.mapping(z)[:, None].expand_as(seen[2]))


def test_truncation_moves_the_styles_towards_their_average():
    generator = stylegan2()
    z = torch.randn(512, 6)
    for _ in range(3):
        generator(z)
    w = generator.mapping(z)
    assert_close(generator.average_style, (1 - 0.995**3) * w.mean(0))
    generator.eval()
    before = generator.average_style.clone()
    images = {psi: generator(z[:2], truncation=psi) for psi in (0.0, 0.5, 1.0)}
    assert torch.equal(generator.average_style, before)
    assert torch.equal(images[1.0], generator(z[:2]))
    assert_close(images[0.0][0], images[0.0][1])
    halfway = torch.lerp(before, w[:2], 0.5)[:, None].expand(-1, generator.synthesis.num_styles, -1)
    assert_close(images[0.5], generator.synthesis(halfway))
    with torch.autocast("cpu", torch.bfloat16):
        assert generator(z[:2], truncation=0.5).isfinite().all()


def test_only_the_direction_of_a_latent_counts():
    generator = stylegan2().eval()
    z = torch.randn(2, 6)
    assert_close(generator(3 * z), generator(z), atol=1e-4, rtol=1e-4)


def test_images_are_the_sum_of_what_each_resolution_adds():
    synthesis = stylegan2().eval().synthesis
    styles = torch.randn(2, synthesis.num_styles, 8)
    whole = synthesis(styles)
    parts = []
    for kept in range(3):
        part = copy.deepcopy(synthesis)
        for i, to_pixels in enumerate(part.to_pixels):
            if i != kept:
                nn.init.zeros_(to_pixels.conv.weight)
        parts.append(part(styles))
    assert_close(sum(parts), whole)
    first = synthesis.convolutions[0](synthesis.constant.expand(2, -1, -1, -1), styles[:, 0])
    coarse = synthesis.to_pixels[0](first, styles[:, 1])
    assert_close(parts[0], double(double(coarse, boxes=3), boxes=3))


def test_the_discriminator_blocks_halve_smoothly_beside_their_convolutions():
    block = build_discriminator("stylegan2", (1, 8, 8), width=4).layers[1]
    x = torch.randn(2, 4, 8, 8)
    y = block.conv2(block.conv1(x))
    assert_close(block(x), (y + block.shortcut(halve(x, boxes=3))) / 2**0.5)


def test_the_path_from_styles_to_images_can_be_differentiated_twice():
    generator = stylegan2()
    w = generator.mapping(torch.randn(2, 6))
    styles = w[:, None].repeat(1, generator.synthesis.num_styles, 1)
    images = generator.synthesis(styles)
    noise = torch.randn_like(images)
    (gradient,) = torch.autograd.grad((images * noise).sum(), styles, create_graph=True)
    gradient.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in generator.mapping.parameters())


def deviation(x, group_size):
    layers = build_discriminator("stylegan2", (1, 8, 8), width=4, group_size=group_size).layers
    layer = next(each for each in layers if hasattr(each, "group_size"))
    out = layer(x)
    assert torch.equal(out[:, :-1], x)
    assert torch.equal(out[:, -1:], out[:, -1:, :1, :1].expand_as(out[:, -1:]))
    return out[:, -1, 0, 0]


def test_the_discriminator_sees_the_deviation_of_each_group():
    x = torch.randn(8, 4, 3, 5)
    groups = [x[:4], x[4:]]
    expected = [group.std(0, correction=0).mean() for group in groups]
    assert_close(deviation(x, 4), torch.stack(expected).repeat_interleave(4))
    # cut into micro-batches of whole groups it sees the same
    assert_close(deviation(x, 4), torch.cat([deviation(group, 4) for group in groups]))
    assert_close(deviation(x[:1].repeat(4, 1, 1, 1), 4), torch.full((4,), 1e-4))


@pytest.mark.parametrize(("batch", "group"), [(6, 3), (2, 2), (7, 1), (1, 1), (8, 4)])
def test_a_batch_that_is_no_multiple_of_the_group_has_smaller_groups(batch, group):
    x = torch.randn(batch, 4, 4, 4)
    assert_close(deviation(x, 4), deviation(x, group))
    assert len(set(deviation(x, 4).tolist())) == (batch // group if group > 1 else 1)


def test_the_learning_rate_is_equalised():
    discriminator = build_discriminator("stylegan2", (1, 16, 16), width=16)
    generator = stylegan2(style_dim=64)
    for layer in discriminator.layers:
        if hasattr(layer, "weight"):
            assert layer.weight.std().item() == pytest.approx(1, rel=0.2)
    first = generator.mapping.layers[0]
    assert first.weight.std().item() == pytest.approx(100, rel=0.2)
    assert first.scale == pytest.approx(0.01 / 6**0.5)
    assert_close(generator.synthesis.to_pixels[0].conv.style.bias, torch.ones(16))


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (build_generator, {"style_mixing": 1.5}, "generator.style_mixing: 1.5 is no probability"),
        (build_generator, {"mapping_layers": 0}, "generator.mapping_layers: 0 is below 1"),
        (build_discriminator, {"group_size": 0}, "discriminator.group_size: 0 is below 1"),
        (build_generator, {"clamp": 0.0}, "generator.clamp: 0 is not above 0; None turns it off"),
        (
            build_discriminator,
            {"clamp": -1.0},
            "discriminator.clamp: -1 is not above 0; None turns it off",
        ),
    ],
)
def test_stylegan2_options_that_cannot_be(build, options, message):
    with pytest.raises(GanError) as error:
        build("stylegan2", (3, 16, 16), width=4, **options)
    assert str(error.value) == message


# --- low precision -------------------------------------------------------------------------------

LOW, FULL = torch.bfloat16, torch.float32


def precisions(network, x):
    """Height and type of what every convolution gives, in order, and the types of the linears."""
    convolutions, linears = [], set()

    def look(_, __, y):
        if y.ndim == 4:
            convolutions.append((y.shape[2], y.dtype))
        else:
            linears.add(y.dtype)

    for layer in network.modules():
        if hasattr(layer, "scale"):
            layer.register_forward_hook(look)
    with torch.autocast("cpu", LOW):
        assert network(x).dtype == FULL
    return convolutions, linears


@pytest.mark.parametrize(
    ("low_precision", "kinds"),
    [(1, [FULL, FULL, LOW]), (2, [FULL, LOW, LOW]), (9, [FULL, LOW, LOW]), (None, [LOW] * 3)],
)
def test_which_layers_of_the_generator_follow_autocast(low_precision, kinds):
    convolutions, linears = precisions(stylegan2(low_precision=low_precision), torch.randn(2, 6))
    four, eight, sixteen = kinds
    assert convolutions == [(4, four)] * 2 + [(8, eight)] * 3 + [(16, sixteen)] * 3
    assert linears == {FULL}  # mapping and styles


@pytest.mark.parametrize(
    ("low_precision", "kinds", "linear"),
    [
        (1, [LOW, FULL, FULL], FULL),
        (2, [LOW, LOW, FULL], FULL),
        (9, [LOW, LOW, FULL], FULL),
        (None, [LOW] * 3, LOW),
    ],
)
def test_which_layers_of_the_discriminator_follow_autocast(low_precision, kinds, linear):
    network = build_discriminator("stylegan2", (3, 16, 16), width=4, low_precision=low_precision)
    convolutions, linears = precisions(network, torch.randn(2, 3, 16, 16))
    sixteen, eight, four = kinds
    first = [(16, sixteen)] * 2 + [(8, sixteen)] * 2
    assert convolutions == [*first, (8, eight), (4, eight), (4, eight), (4, four)]
    assert linears == {linear}


def test_noise_and_bias_keep_a_layer_in_low_precision():
    for generator in (stylegan2(low_precision=2), stylegan2(low_precision=2).eval()):
        seen = []
        for layer in generator.synthesis.convolutions:
            layer.register_forward_hook(lambda _, __, y, seen=seen: seen.append(y.dtype))
        with torch.autocast("cpu", LOW):
            generator(torch.randn(2, 6))
        assert seen == [FULL, LOW, LOW, LOW, LOW]


def largest_outputs(network, x):
    """Largest magnitude that leaves each convolution with a bias, and those without."""
    biased, others = [], []
    for layer in network.modules():
        if hasattr(layer, "clamp"):
            sizes = others if layer.bias is None else biased
            layer.register_forward_hook(
                lambda _, __, y, sizes=sizes: sizes.append(y.abs().max().item())
            )
    network(x)
    return biased, others


def test_what_leaves_a_convolution_is_clamped():
    generator = stylegan2(clamp=0.125)
    for layer in generator.synthesis.to_pixels:
        nn.init.ones_(layer.bias)
    assert largest_outputs(generator, torch.randn(4, 6)) == ([0.125] * 8, [])
    network = build_discriminator("stylegan2", (3, 16, 16), width=4, clamp=0.125)
    nn.init.constant_(network.layers[1].shortcut.weight, 10.0)
    biased, shortcuts = largest_outputs(network, 10 + torch.randn(4, 3, 16, 16))
    assert biased == [0.125] * 6
    assert max(shortcuts) > 0.125  # which have no activation


def test_a_clamp_beyond_all_activations_changes_nothing():
    z, x = torch.randn(2, 6), torch.randn(2, 3, 16, 16)
    results = []
    for clamp in (None, 256.0):
        torch.manual_seed(0)
        generator = stylegan2(clamp=clamp)
        discriminator = build_discriminator("stylegan2", (3, 16, 16), width=4, clamp=clamp)
        results.append((generator(z), discriminator(x)))
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_the_sizes_of_style_and_kernel_cancel():
    conv = stylegan2().synthesis.convolutions[0].conv
    x, w = torch.randn(2, conv.weight.shape[1], 4, 4), torch.randn(2, 8)
    before = conv(x, w)
    with torch.no_grad():
        conv.weight.mul_(torch.logspace(-3, 3, conv.weight.shape[0])[:, None, None, None])
        conv.style.weight.mul_(1000)
        conv.style.bias.mul_(1000)
    assert_close(conv(x, w), before, atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        conv.style.weight.zero_()
        conv.style.bias.zero_()
    assert torch.equal(conv(x, w), torch.zeros_like(x))


def test_the_largest_activations_do_not_overflow_fp16():
    conv = stylegan2(width=128, max_width=512).synthesis.convolutions[0].conv
    channels = conv.weight.shape[1]
    assert channels == 512
    with torch.no_grad():  # every product positive: as large as a sum of the kernel can be
        conv.weight.fill_(4.0)
        conv.style.weight.zero_()
        conv.style.bias.fill_(10.0)
    x = torch.full((1, channels, 4, 4), 256.0)
    expected = conv(x, torch.zeros(1, 8))
    assert 256 * 10 * 4 * channels * 9 * conv.scale > torch.finfo(torch.float16).max
    with torch.autocast("cpu", torch.float16):
        y = conv(x.half(), torch.zeros(1, 8))
    assert y.dtype == torch.float16
    assert_close(y.float(), expected, rtol=2e-3, atol=0)

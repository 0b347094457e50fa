import pytest
import torch
from torch import nn
from torch.testing import assert_close

from gan.networks import build_discriminator, build_generator, count_parameters


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
    for build in (build_generator, build_discriminator):
        network = build("dcgan", (3, 64, 64), width=8)
        weights = [
            layer.weight.flatten()
            for layer in network.modules()
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear)
        ]
        assert torch.cat(weights).std().item() == pytest.approx(0.02, rel=0.03)
        assert torch.cat(weights).mean().item() == pytest.approx(0, abs=1e-3)
        norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
        gains = torch.cat([layer.weight for layer in norms])
        assert gains.mean().item() == pytest.approx(1, abs=0.01)
        assert gains.std().item() == pytest.approx(0.02, rel=0.3)
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
    assert " ".join(kinds) == "Conv2d LeakyReLU Conv2d Flatten LeakyReLU Linear LeakyReLU"
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

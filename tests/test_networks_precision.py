import copy

import pytest
import torch

from gan.errors import GanError
from gan.networks import build_discriminator, build_generator
from gan.networks.precision import run, split
from gan.penalties import r1_penalty

HALF = torch.bfloat16
FAMILIES = ["r3gan", "stylegan2"]
TINY = {
    "r3gan": ({"z_dim": 6, "width": 4}, {"width": 4}),
    "stylegan2": ({"z_dim": 6, "width": 4, "style_dim": 8}, {"width": 4}),
}


def autocast(enabled=True):
    return torch.autocast("cpu", HALF, enabled=enabled)


def pair(family, low_precision=None, seed=0):
    """Both networks at 16x16, which are three resolutions, with no layer of zeros left."""
    torch.manual_seed(seed)
    generator, discriminator = TINY[family]
    networks = (
        build_generator(family, (3, 16, 16), low_precision=low_precision, **generator),
        build_discriminator(family, (3, 16, 16), low_precision=low_precision, **discriminator),
    )
    with torch.no_grad():
        for network in networks:
            for parameter in network.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
    return networks


def kinds(low):
    """Types that a layer gets: first argument, another one, and what a product of it has."""

    def layer(x, other):
        return x.dtype, other.dtype, (x.flatten(1) @ torch.ones(4, 2).to(x.dtype)).dtype

    return run(layer, torch.ones(3, 4), torch.ones(1), low=low)


def test_layers_run_in_the_precision_of_their_resolution():
    with autocast():
        assert kinds(low=True) == (HALF, torch.float32, HALF)
        assert kinds(low=False) == (torch.float32,) * 3
        assert run(lambda x: x.dtype, torch.ones(2, dtype=HALF), low=False) == torch.float32
        assert torch.is_autocast_enabled("cpu")  # comes back on


@pytest.mark.parametrize("low", [False, True])
def test_without_autocast_nothing_is_touched(low):
    for kind in (torch.float64, torch.float32, HALF):
        x = torch.ones(2, dtype=kind)
        assert run(lambda x: x, x, low=low) is x
        with autocast(enabled=False):
            assert run(lambda x: x, x, low=low) is x
    x = torch.ones(2, device="meta")  # a device that has no autocast
    assert run(lambda x: x, x, low=low) is x


@pytest.mark.parametrize(
    ("low_precision", "least", "full"),
    [(None, 0, 0), (None, 1, 0), (1, 0, 4), (4, 0, 1), (5, 0, 0), (5, 1, 1), (9, 0, 0), (9, 1, 1)],
)
def test_the_lowest_of_five_resolutions_stay_in_fp32(low_precision, least, full):
    assert split(5, low_precision, least) == full


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("build", [build_generator, build_discriminator])
def test_no_resolution_in_low_precision_is_another_option(family, build):
    with pytest.raises(GanError, match=r"^(generator|discriminator)\.low_precision: 0 is below 1$"):
        build(family, (3, 16, 16), low_precision=0)


# --- the families --------------------------------------------------------------------------------


@pytest.mark.parametrize("low_precision", [1, 2, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_without_autocast_the_option_changes_nothing(family, low_precision):
    plain, option = pair(family), pair(family, low_precision)
    for network, other, x in zip(
        plain, option, (torch.randn(4, 6), torch.randn(4, 3, 16, 16)), strict=True
    ):
        assert list(network.state_dict()) == list(other.state_dict())
        other.load_state_dict(network.state_dict())
        results = []
        for each in (network, other):
            torch.manual_seed(1)  # of the noise
            out = each(x)
            results.append([out, *torch.autograd.grad(out.square().sum(), each.parameters())])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("low_precision", [None, 1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_pass_from_one_precision_to_the_other(family, low_precision):
    generator, discriminator = pair(family, low_precision)
    generator.eval()  # no noise
    z = torch.randn(4, 6)  # of the seed of the networks

    def gradients(enabled):
        with autocast(enabled):
            logits = discriminator(generator(z))
        networks = [*generator.named_parameters(), *discriminator.named_parameters()]
        kept = [parameter for name, parameter in networks if "strength" not in name]
        return torch.cat([g.flatten() for g in torch.autograd.grad(logits.float().sum(), kept)])

    exact, rounded = gradients(False), gradients(True)
    assert 0 < (rounded - exact).norm() < 0.25 * exact.norm()


@pytest.mark.parametrize("low_precision", [None, 1, 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_penalties_differentiate_both_precisions_twice(family, low_precision):
    _, discriminator = pair(family, low_precision)
    images = torch.rand(4, 3, 16, 16)

    def gradient(enabled):
        discriminator.zero_grad()
        with autocast(enabled):
            penalty = r1_penalty(lambda x: discriminator(x).float(), images)
        penalty.mean().backward()
        return torch.cat(
            [p.grad.flatten() for p in discriminator.parameters() if p.grad is not None]
        )

    exact, rounded = gradient(False), gradient(True)
    assert 0 < (rounded - exact).norm() < 0.1 * exact.norm()


@pytest.mark.parametrize("family", FAMILIES)
def test_fewer_resolutions_in_low_precision_are_nearer_to_fp32(family):
    z = torch.randn(16, 6)
    errors = []
    for low_precision in (None, 1):
        generator = pair(family, low_precision)[0].eval()
        with autocast():
            images = generator(z)
        errors.append((images - generator(z)).norm().item())
    assert 0 < errors[1] < errors[0]


@pytest.mark.parametrize("enabled", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_networks_are_one_graph(family, enabled):
    generator, discriminator = pair(family, 2)
    generator.eval()
    for network, x in ((generator, torch.randn(2, 6)), (discriminator, torch.rand(2, 3, 16, 16))):
        torch._dynamo.reset()
        compiled = torch.compile(network, backend="eager", fullgraph=True)
        with autocast(enabled), torch.no_grad():
            assert torch.equal(compiled(x), network(x))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_copy_keeps_its_precision(family):
    for network, x in zip(
        pair(family, 1), (torch.randn(2, 6), torch.rand(2, 3, 16, 16)), strict=True
    ):
        network.eval()
        with autocast(), torch.no_grad():
            assert torch.equal(copy.deepcopy(network)(x), network(x))

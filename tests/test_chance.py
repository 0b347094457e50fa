"""Random numbers that depend on seed, step and role, and not on how a batch is cut."""

import itertools
import math

import pytest
import torch

from gan.chance import Chance, generator_for

KEY = (7, 0, 41, "generator")


@pytest.mark.parametrize("draw", ["normal", "uniform"])
@pytest.mark.parametrize("shape", [(), (5,), (512,), (3, 40, 40)])
def test_every_cut_draws_the_same_numbers(draw, shape):
    """Of the last two shapes one generator serves eight examples, or one."""
    whole = getattr(Chance(KEY, 0, 100), draw)("z", *shape)
    assert whole.shape == (100, *shape)
    for size in (1, 4, 10, 16, 25, 50):
        parts = [
            getattr(Chance(KEY, start, min(start + size, 100)), draw)("z", *shape)
            for start in range(0, 100, size)
        ]
        assert torch.equal(torch.cat(parts), whole)
    uneven = [
        getattr(Chance(KEY, a, b), draw)("z", *shape) for a, b in ((0, 3), (3, 37), (37, 100))
    ]
    assert torch.equal(torch.cat(uneven), whole)


def test_everything_in_the_key_and_the_role_matters():
    chances = [
        Chance((7, 0, 41, "generator"), 0, 16),
        Chance((8, 0, 41, "generator"), 0, 16),
        Chance((7, 1, 41, "generator"), 0, 16),
        Chance((7, 0, 42, "generator"), 0, 16),
        Chance((7, 0, 41, "discriminator 0"), 0, 16),
        Chance((7, 0, 41, "discriminator 1"), 0, 16),
        Chance((7, 0, 41, "generator"), 16, 32),
        Chance((7, 0, 41, "generator"), 0, 16).child("colour"),
        Chance((7, 0, 41, "generator"), 0, 16).child("colour").child("z"),
    ]
    rows = [c.normal(role, 3)[0] for c in chances for role in ("z", "noise")]
    for a, b in itertools.combinations(rows, 2):
        assert not torch.equal(a, b)


def test_the_same_key_gives_the_same_numbers_again_and_leaves_the_global_generator_alone():
    before = torch.get_rng_state()
    first = Chance(KEY, 3, 9).normal("z", 4)
    assert torch.equal(Chance(KEY, 3, 9).normal("z", 4), first)
    assert torch.equal(torch.get_rng_state(), before)
    child = Chance(KEY, 3, 9).child("part")
    assert (child.start, child.stop, child.key) == (3, 9, (*KEY, "part"))


def test_seeds_are_the_same_in_every_process_and_version():
    """Python's hash() of text is not: it is salted. A change here changes every resumed run."""
    assert generator_for(1, "x").initial_seed() == 18280683524007529382
    assert generator_for().initial_seed() == 5694367389426422167


def test_normal_numbers_are_normal():
    z = torch.cat([Chance((step,), 0, 64).normal("z", 32) for step in range(50)]).flatten()
    error = 4 / math.sqrt(len(z))  # four standard errors
    assert abs(z.mean().item()) < error
    assert abs(z.var().item() - 1) < error * math.sqrt(2)
    assert abs((z.abs() < 1).double().mean().item() - math.erf(math.sqrt(0.5))) < error


def test_uniform_numbers_are_uniform():
    u = torch.cat([Chance((step,), 0, 64).uniform("u", 32) for step in range(50)]).flatten()
    assert 0 <= u.min() < 1e-3
    assert 1 - 1e-3 < u.max() < 1
    counts = torch.histc(u, 10, 0, 1) / len(u)
    assert (counts - 0.1).abs().max() < 4 * math.sqrt(0.09 / len(u))


def test_neighbours_are_independent():
    """Examples, steps and roles one apart are no more alike than any others."""
    a = torch.cat([Chance((s,), 0, 32).normal("z", 8) for s in range(50)])
    other_step = torch.cat([Chance((s + 1,), 0, 32).normal("z", 8) for s in range(50)])
    other_role = torch.cat([Chance((s,), 0, 32).normal("y", 8) for s in range(50)])
    limit = 4 / math.sqrt(a.numel())
    for b in (other_step, other_role, a.roll(1, 0), a.roll(16, 0)):
        assert abs((a * b).mean().item()) < limit


def test_numbers_of_two_kinds_are_independent():
    """A generator gives both from the same bits: whether and how much would go together."""
    chances = [Chance((step,), 0, 64) for step in range(50)]
    u = torch.cat([c.uniform("x", 32) for c in chances]).flatten() - 0.5
    z = torch.cat([c.normal("x", 32) for c in chances]).flatten()
    # Bits in common show in the size of a normal number, not in its sign.
    for a, b in itertools.product((u, u.square() - 1 / 12), (z, z.square() - 1)):
        assert abs((a * b).mean().item()) < 4 * (a.std() * b.std()).item() / math.sqrt(len(u))


def test_fresh_chances_follow_the_global_seed_and_differ():
    torch.manual_seed(3)
    first, second = Chance.fresh(4), Chance.fresh(4)
    assert first != second
    assert (first.start, first.stop) == (0, 4)
    torch.manual_seed(3)
    assert Chance.fresh(4) == first


def test_processes_that_are_seeded_alike_get_different_fresh_chances(two_processes):
    def drawn():
        torch.manual_seed(3)
        return Chance.fresh(4).normal("z", 2)

    first, second = two_processes(drawn)
    assert not torch.equal(first, second)


def test_numbers_go_to_the_device():
    assert Chance(KEY, 0, 2, "meta").normal("z", 3).device.type == "meta"


def test_a_generator_depends_on_its_key_only():
    draws = {
        torch.rand(4, generator=generator_for(*key)).tolist().__str__()
        for key in [(1, 2), (1, 2), (12,), ("1", 2), (1, "2"), (2, 1), ((1, 2),), ()]
    }
    assert len(draws) == 7

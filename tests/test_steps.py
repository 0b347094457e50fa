"""A step is a step: the same however it is cut, and it touches one network only."""

import copy
import dataclasses
import itertools
import weakref
from collections import Counter
from functools import partial

import pytest
import torch
from conftest import reset_accelerate
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm
from toys import TOTAL, Squeezed, accelerator, points, points_run, prepared, weights, window

from gan.chance import Chance
from gan.config import Config
from gan.errors import ConfigError
from gan.freeze import frozen
from gan.loop import train_step
from gan.losses import LOSSES
from gan.networks import build_discriminator
from gan.penalties import PENALTIES, r1_penalty
from gan.presets import preset_config
from gan.run import build
from gan.steps import MicroBatch, discriminator_step, generator_step

CUTTABLE = [name for name in LOSSES if name != "relativistic-average"]
PENALTY_SETS = [
    (),
    ("r1",),
    ("r1/2",),
    ("r1", "r2"),
    ("r1/2", "r2/2"),
    ("wgan-gp",),
    ("wgan-gp/2",),
]


@pytest.fixture
def float64():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def trained(micro_batches, processes=1, steps=3, **options):
    """Weights of both networks and of the average after some steps, and the run."""
    size = TOTAL // (micro_batches * processes)
    run = points_run(
        steps=steps, gradient_accumulation_steps=micro_batches, batch_size=size, **options
    )
    for _ in range(steps):
        train_step(run)
    updates = run.generator.updates, run.discriminator.updates
    assert updates == (steps, steps * options.get("n_critic", 1))
    assert run.images_seen == TOTAL * updates[1] == run.total_images
    return weights(run.generator.raw, run.discriminator.raw, run.ema.module), run


# --- however it is cut ---------------------------------------------------------------------------


@pytest.mark.parametrize("loss", CUTTABLE)
def test_micro_batches_give_what_the_whole_batch_gives(loss, float64):
    results = set()
    for penalties, n_critic in itertools.product(PENALTY_SETS, (1, 2)):
        options = {"loss": loss, "penalties": penalties, "n_critic": n_critic}
        whole, _ = trained(1, **options)
        for micro_batches in (2, 4):
            cut, _ = trained(micro_batches, **options)
            assert (cut - whole).abs().max() <= 1e-12, (options, micro_batches)
        results.add(tuple(whole.tolist()))
    assert len(results) == 2 * len(PENALTY_SETS)  # every option has its effect


def test_spectral_norm_iterates_as_often_however_the_batch_is_cut(float64):
    """Its vectors move at every forward, so the micro-batches must all start from the same ones."""
    options = {"discriminator": {"norm": "spectral"}, "penalties": ["r1"], "loss": "hinge"}
    whole, run = trained(1, **options)
    assert any(name.endswith("_u") for name, _ in run.discriminator.raw.named_buffers())
    for micro_batches in (2, 4):
        cut, _ = trained(micro_batches, **options)
        assert (cut - whole).abs().max() <= 1e-12


def test_with_batch_norm_micro_batches_are_like_processes(float64, two_processes):
    """It normalises by a micro-batch, so the whole batch differs; its running statistics do not."""
    options = {"generator": {"norm": "batch"}, "penalties": ["r1"], "loss": "relativistic"}
    expected = [trained(micro_batches, **options)[0] for micro_batches in (2, 4)]
    whole, run = trained(1, **options)
    assert min((cut - whole).abs().max() for cut in expected) > 1e-6
    assert run.generator.raw.layers[1].num_batches_tracked == run.step

    first, second = two_processes(lambda: [trained(k, 2, **options)[0] for k in (1, 2)])
    for mine, theirs, alone in zip(first, second, expected, strict=True):
        assert torch.equal(mine, theirs)
        assert (mine - alone).abs().max() <= 1e-12


def test_relativistic_average_depends_on_the_cut_as_its_docstring_says(float64):
    whole, cut = (trained(k, loss="relativistic-average")[0] for k in (1, 2))
    assert (cut - whole).abs().max() > 1e-6


def test_two_processes_give_what_one_gives(float64, two_processes):
    cases = [
        {"loss": loss, "penalties": penalties, "n_critic": n_critic}
        for n_critic in (1, 2)
        for loss, penalties in zip(CUTTABLE, (*PENALTY_SETS[n_critic:], ()), strict=False)
    ]
    one = [trained(1, **case)[0] for case in cases]

    def both_cuts():
        return [[trained(k, 2, **case)[0] for k in (1, 2)] for case in cases]

    first, second = two_processes(both_cuts)
    for case, alone, mine, theirs in zip(cases, one, first, second, strict=True):
        for k in (0, 1):
            assert torch.equal(mine[k], theirs[k]), case
            assert (mine[k] - alone).abs().max() <= 1e-12, case


def test_the_data_may_end_in_the_middle_of_a_window():
    run = points_run(
        points(10, num_classes=10),
        steps=5,
        batch_size=2,
        gradient_accumulation_steps=3,
        n_critic=2,
    )
    seen = Counter()

    class Watched:
        position = 0

        def __next__(self, stream=run.stream):
            real, labels = next(stream)
            seen.update(labels.tolist())
            return real, labels

    run.stream = Watched()
    for _ in range(5):
        train_step(run)
    assert (run.generator.updates, run.discriminator.updates, run.images_seen) == (5, 10, 60)
    assert seen == Counter(dict.fromkeys(range(10), 6))  # six epochs, none of them whole windows


def test_gradients_are_averaged_once_for_each_update(two_processes):
    """Accelerate's accumulate(), given two networks, averages at every micro-batch."""

    def reductions():
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        counts = Counter()
        generator, discriminator = prepared(
            acc := accelerator(), nn.Linear(3, 2), Squeezed(nn.Linear(2, 1))
        )

        def counted(name, bucket):
            counts[name] += 1
            return allreduce_hook(None, bucket)

        for player in (generator, discriminator):
            player.model.register_comm_hook(player.name, counted)
        for step in (discriminator_step, generator_step):
            step(acc, generator, discriminator, window(4), LOSSES["hinge"])
        return dict(counts)

    assert two_processes(reductions) == [{"generator": 1, "discriminator": 1}] * 2


@pytest.mark.parametrize("step", [discriminator_step, generator_step])
def test_micro_batches_of_several_sizes_are_refused(step):
    acc = accelerator()
    players = prepared(acc, nn.Linear(3, 2), Squeezed(nn.Linear(2, 1)))
    batches = [*window(2, 4), *window(1, 2)]
    with pytest.raises(ConfigError) as error:
        step(acc, *players, batches, LOSSES["hinge"])
    assert str(error.value) == (
        "the micro-batches of one update must have one size, not [4, 4, 2], or their examples "
        "would not weigh the same; give the DataLoader drop_last=True"
    )


@pytest.mark.parametrize("step", [discriminator_step, generator_step])
def test_an_accelerator_that_contradicts_the_window_is_refused(step):
    acc = accelerator(gradient_accumulation_steps=4)
    players = prepared(acc, nn.Linear(3, 2), Squeezed(nn.Linear(2, 1)))
    with pytest.raises(ConfigError) as error:
        step(acc, *players, window(2), LOSSES["hinge"])
    assert str(error.value) == (
        "gradient_accumulation_steps: the Accelerator has 4, but the update has 2 micro-batches; "
        "give the update 4, or the Accelerator 1"
    )
    step(acc, *players, window(4), LOSSES["hinge"])


def test_a_lazy_penalty_is_due_every_kth_update_with_k_times_the_weight():
    run = points_run(penalties=["r1/4", "wgan-gp=3/2", "r2"], gamma=0.5, n_critic=2)
    due = []
    for _ in range(3):
        due.append({name: weight for name, (weight, _) in run.due_penalties().items()})
        train_step(run)  # two updates of the discriminator
    first, second = {"r1": 4 * 0.25, "wgan-gp": 6.0, "r2": 0.25}, {"wgan-gp": 6.0, "r2": 0.25}
    assert due == [first, second, first]


def test_gradients_are_measured_where_a_point_of_the_curves_is_due():
    """At the first step too, so that there is something to show. So is what was said of images."""
    run = points_run(log_every=3, steps=5, penalties=["r1"], loss="hinge")
    steps = []
    for _ in range(5):
        scalars = train_step(run)
        run.latest |= scalars
        steps.append(set(scalars))
    terms = {"loss/generator", "loss/discriminator", "penalty/r1"}
    seen = {f"{what}/{kind}" for what in ("logits", "sign") for kind in ("real", "fake")}
    whole = terms | seen | {"grad_norm/generator", "grad_norm/discriminator"}
    assert steps == [whole, terms, whole, terms, whole]


# --- fewer forwards, the same step -----------------------------------------------------------


@pytest.mark.parametrize(
    ("loss", "penalties", "forwards"),
    [
        ("relativistic", (), 2),
        ("relativistic", ("r1",), 2),
        ("relativistic", ("r2", "r1"), 2),
        ("relativistic", ("r1", "wgan-gp"), 3),
        ("hinge", ("r2",), 2),
    ],
)
@pytest.mark.parametrize("conditional", [False, True])
def test_a_pure_discriminator_is_asked_less_often(loss, penalties, forwards, conditional, float64):
    ends, counts = [], []
    for pure in (True, False):
        data = points(12, num_classes=2) if conditional else None
        options = {"loss": loss, "penalties": penalties, "conditional": conditional, "steps": 3}
        run = points_run(*[data] * conditional, **options)
        assert run.discriminator.raw.pure  # the MLP says so of itself
        run.discriminator.raw.pure = pure
        calls = []
        run.discriminator.raw.head.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        for _ in range(3):
            train_step(run)
        counts.append(len(calls) // 3 - (2 if run.loss.relativistic else 1))  # the generator's
        ends.append(weights(run.generator.raw, run.discriminator.raw))
    assert counts == [forwards, 2 + len(penalties)]
    assert (ends[0] - ends[1]).abs().max() <= 1e-12


@pytest.mark.parametrize(
    ("penalties", "spared"), [([], 1), (["r1"], 0), (["r1", "r2"], 1), (["r2", "wgan-gp/2"], 0)]
)
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_a_joint_forward_changes_nothing_but_the_number_of_forwards(
    penalties, spared, micro_batches, float64
):
    ends, counts = [], []
    for joint in (False, True):
        cut = {"gradient_accumulation_steps": micro_batches, "batch_size": 8 // micro_batches}
        options = {"loss": "hinge", "penalties": penalties, "conditional": True, "steps": 4} | cut
        run, calls = points_run(points(16, num_classes=2), joint_forward=joint, **options), []
        run.discriminator.raw.head.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        train_step(run)
        counts.append(len(calls) // micro_batches)
        for _ in range(3):
            train_step(run)
        ends.append(weights(run.generator.raw, run.discriminator.raw))
    assert counts[0] - counts[1] == spared
    assert (ends[0] - ends[1]).abs().max() <= 1e-12


# --- one kind of image after the other ------------------------------------------------------


@pytest.mark.parametrize("norm", ["batch", "spectral", "none"])
@pytest.mark.parametrize("micro_batches", [1, 2])
def test_two_backwards_of_a_separable_loss_are_one(norm, micro_batches, float64):
    torch.manual_seed(0)
    network = build_discriminator("dcgan", (1, 8, 8), width=4, norm=norm)
    real, fake, z = torch.randn(8, 1, 8, 8), torch.randn(8, 1, 8, 8), torch.zeros(8, 3)
    cut = [each.chunk(micro_batches) for each in (real, fake, z)]
    batches = [MicroBatch(r, (z,), fake=f) for r, f, z in zip(*cut, strict=True)]
    ends = []
    for separable in (True, False):
        loss = dataclasses.replace(LOSSES["hinge"], separable=separable)
        acc, mine = accelerator(), copy.deepcopy(network)
        players = prepared(acc, nn.Linear(3, 2), mine, optimizer=torch.optim.SGD, lr=1.0)
        report = discriminator_step(acc, *players, batches, loss)
        ends.append((weights(mine), torch.stack(list(report.values()))))
    assert (ends[0][0] - weights(network)).abs().max() > 1e-3
    for one, other in zip(*ends, strict=True):
        assert (one - other).abs().max() <= 1e-12


class Kept:
    """A tensor that a graph holds for its backward."""

    def __init__(self, tensor):
        self.tensor = tensor


@pytest.mark.parametrize("loss", ["hinge", "relativistic"])
def test_what_real_images_leave_behind_is_gone_before_the_fake_ones_come(loss):
    alive, kept = [], []

    def keep(tensor):
        kept.append(weakref.ref(it := Kept(tensor)))
        return it

    class Watched(nn.Linear):
        def forward(self, images):
            alive.append(sum(each() is not None for each in kept))
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda it: it.tensor):
                return super().forward(images).exp().flatten()

    acc = accelerator()
    generator, discriminator = prepared(acc, nn.Linear(3, 2), Watched(2, 1))
    batch = MicroBatch(torch.randn(4, 2), (torch.randn(4, 3),))
    discriminator_step(acc, generator, discriminator, [batch], LOSSES[loss])
    assert alive[0] == 0
    assert (alive[1] == 0) is LOSSES[loss].separable


def judged_in(precision, penalties):
    """What one update makes of a pure discriminator's weights, from this process's part."""
    torch.manual_seed(0)
    acc = accelerator(mixed_precision=precision)
    rank, of = acc.process_index, acc.num_processes
    generator = nn.Linear(3, 2)
    discriminator = build_discriminator("mlp", (2,), hidden=(16, 16))
    start = weights(discriminator)
    pair = prepared(acc, generator, discriminator, optimizer=torch.optim.SGD, lr=1.0)
    torch.manual_seed(1)
    real, z, fake = torch.randn(8, 2), torch.randn(8, 3), torch.randn(8, 2)
    mine = slice(rank * 8 // of, (rank + 1) * 8 // of)
    batch = MicroBatch(real[mine], (z[mine],), fake=fake[mine])
    due = {name: (0.5, PENALTIES[name].term) for name in penalties}
    forward = vars(pair[1].raw).get("forward")
    discriminator_step(acc, *pair, [batch], LOSSES["relativistic"], penalties=due)
    assert vars(pair[1].raw).get("forward") is forward
    return weights(pair[1].raw) - start


def test_under_bf16_a_forward_that_both_penalties_share_is_the_only_one_and_in_fp32():
    found = {}
    for precision, penalties in itertools.product(("no", "bf16"), (("r1", "r2"), ("r1",))):
        reset_accelerate()
        found[precision, len(penalties)] = judged_in(precision, penalties)
    assert (found["bf16", 2] - found["no", 2]).norm() <= 1e-6 * found["no", 2].norm()
    assert (found["bf16", 1] - found["no", 1]).norm() > 1e-4 * found["no", 1].norm()


def test_under_bf16_that_forward_is_averaged_over_the_processes(two_processes):
    exact = judged_in("no", ("r1", "r2"))
    for mine in two_processes(judged_in, "bf16", ("r1", "r2")):
        assert (mine - exact).norm() <= 1e-6 * exact.norm()


def test_in_fp32_too_a_batch_may_be_cut_and_judged_in_one_forward():
    """A bias that both kinds of image pull at equally hard gets no gradient, not a rounding error.

    Of that Adam would make steps of its own: a forward of first the one kind and then the other is
    1e-3 off here.
    """
    base = preset_config("digits")
    ends = []
    for joint, micro_batches in itertools.product((False, True), (1, 2)):
        cut = {"gradient_accumulation_steps": micro_batches, "batch_size": 64 // micro_batches}
        options = {**cut, "joint_forward": joint, "generator": {"norm": "none"}}
        run = build(Config.from_dict(options, base))
        for _ in range(10):
            train_step(run)
        ends.append(weights(run.generator.raw, run.discriminator.raw))
    for end in ends[1:]:
        assert (end - ends[0]).abs().max() <= 1e-5


def test_a_network_with_a_memory_has_no_joint_forward(float64):
    ends = []
    for joint in (False, True):
        run = points_run(joint_forward=joint, discriminator={"norm": "spectral"})
        train_step(run)
        ends.append(weights(run.generator.raw, run.discriminator.raw))
    assert torch.equal(*ends)


def test_networks_with_a_memory_do_not_call_themselves_pure():
    shape = (3, 16, 16)
    pure = {
        (family, norm): build_discriminator(family, shape, norm=norm).pure
        for family in ("dcgan", "resnet", "mlp")
        for norm in ("none", "spectral", *["batch"] * (family == "dcgan"))
    }
    assert {key for key, value in pure.items() if value} == {
        ("dcgan", "none"),
        ("resnet", "none"),
        ("mlp", "none"),
    }
    assert build_discriminator("r3gan", shape, width=16).pure
    assert not build_discriminator("stylegan2", shape, width=8).pure


REUSE = {"reuse_fakes": True, "loss": "relativistic", "penalties": ["r1/2", "r2"]}


def test_reused_fakes_serve_both_networks(float64):
    """One forward of the generator a step, and the two updates that follow from its fakes."""
    options = {**REUSE, "penalties": [], "generator": {"norm": "batch"}}
    run, calls = points_run(steps=4, **options), []
    train_step(run)
    run.generator.raw.register_forward_hook(lambda *_: calls.append(1))
    generator, discriminator = copy.deepcopy((run.generator.raw, run.discriminator.raw))
    statistics = generator.layers[1].num_batches_tracked.item()
    shown = []
    run.discriminator.raw.register_forward_hook(lambda _, args, __: shown.append(args[0]))
    train_step(run)
    assert len(calls) == 1
    assert run.generator.raw.layers[1].num_batches_tracked == statistics + 1
    real, fake, fake_again, real_again = shown
    assert torch.equal(fake, fake_again)
    assert torch.equal(real, real_again)
    assert fake_again.requires_grad
    assert not torch.equal(weights(generator), weights(run.generator.raw))
    assert not torch.equal(weights(discriminator), weights(run.discriminator.raw))


@pytest.mark.parametrize("n_critic", [1, 2])
def test_reused_fakes_are_the_same_however_the_batch_is_cut(n_critic, float64):
    """Several micro-batches make them twice, from the same latents: no graph has to be kept."""
    options = {**REUSE, "n_critic": n_critic}
    whole = trained(1, **options)[0]
    for micro_batches in (2, 4):
        assert (trained(micro_batches, **options)[0] - whole).abs().max() <= 1e-12
    assert (whole - trained(1, **{**options, "reuse_fakes": False})[0]).abs().max() > 1e-6


def test_reused_fakes_give_in_two_processes_what_they_give_in_one(float64, two_processes):
    alone = trained(1, **REUSE)[0]
    first, second = two_processes(lambda: [trained(k, 2, **REUSE)[0] for k in (1, 2)])
    for mine, theirs in zip(first, second, strict=True):
        assert torch.equal(mine, theirs)
        assert (mine - alone).abs().max() <= 1e-12


# --- one network only ----------------------------------------------------------------------------


def with_norms():
    """A pair with batch norm, spectral norm, and a parameter that does not train, in both."""
    generator = nn.Sequential(spectral_norm(nn.Linear(3, 8)), nn.BatchNorm1d(8), nn.Linear(8, 2))
    discriminator = Squeezed(
        spectral_norm(nn.Linear(2, 8)), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)
    )
    for network in (generator, discriminator):
        network[-1].bias.requires_grad_(False)
    return generator, discriminator


def everything(player):
    """All that a step may change of a player."""
    return copy.deepcopy(
        {
            "weights": {name: value.tolist() for name, value in player.raw.state_dict().items()},
            "gradients": [
                None if p.grad is None else p.grad.tolist() for p in player.raw.parameters()
            ],
            "requires_grad": [p.requires_grad for p in player.raw.parameters()],
            "training": player.raw.training,
            "optimizer": str(player.optimizer.state_dict()),
            "updates": (player.updates, player.skipped),
        }
    )


PENALTIES_DUE = {"r1": (1.0, PENALTIES["r1"].term), "wgan-gp": (1.0, PENALTIES["wgan-gp"].term)}


def both(acc, generator, discriminator):
    """The two steps, each with what it trains and what it must leave alone."""
    loss = LOSSES["relativistic"]
    d_step = partial(discriminator_step, acc, generator, discriminator, loss=loss)
    g_step = partial(generator_step, acc, generator, discriminator, loss=loss)
    return {
        "discriminator": (partial(d_step, penalties=PENALTIES_DUE), discriminator, generator),
        "generator": (g_step, generator, discriminator),
    }


@pytest.mark.parametrize("name", ["discriminator", "generator"])
def test_a_phase_touches_only_its_own_network(name):
    acc = accelerator()
    step, own, other = both(acc, *prepared(acc, *with_norms()))[name]
    for _ in range(2):
        before, untouched = everything(own), everything(other)
        step(window())
        after = everything(own)
        assert everything(other) == untouched
        assert {key for key in after if after[key] != before[key]} == {
            "weights",
            "optimizer",
            "updates",
        }
        changed = {
            key for key in after["weights"] if after["weights"][key] != before["weights"][key]
        }
        assert {
            "1.running_mean",
            "1.num_batches_tracked",
            "0.parametrizations.weight.0._u",
        } < changed
        assert after["gradients"] == [None] * len(after["gradients"])


@pytest.mark.parametrize("name", ["discriminator", "generator"])
def test_a_step_that_raises_in_the_middle_leaves_everything_as_it_was(name):
    acc = accelerator()
    step, own, other = both(acc, *prepared(acc, *with_norms()))[name]
    step(window())  # so that there is optimizer state
    calls = []

    def second_one_fails(scores):
        calls.append(scores)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return scores.fake_logits.square()

    before, untouched = everything(own), everything(other)
    with pytest.raises(KeyboardInterrupt):
        step(window(3), penalties={"failing": (1.0, second_one_fails)})
    assert everything(other) == untouched
    assert everything(own) == before
    assert acc.sync_gradients
    assert acc.gradient_accumulation_steps == 1

    again = copy.deepcopy(own.raw)
    torch.manual_seed(1)
    step(window())
    assert own.updates == 2
    assert any(
        not torch.equal(a, b) for a, b in zip(own.raw.parameters(), again.parameters(), strict=True)
    )


@pytest.mark.parametrize("micro_batches", [1, 3])
@pytest.mark.parametrize("name", ["discriminator", "generator"])
def test_after_an_interrupted_window_the_next_is_what_it_would_have_been(name, micro_batches):
    ends = []
    for fail in (False, True):
        torch.manual_seed(0)
        acc = accelerator()
        step, own, _ = both(acc, *prepared(acc, *with_norms()))[name]
        first, second = window(3), window(micro_batches)
        if fail:
            broken = [*first[:2], dataclasses.replace(first[2], inputs=(torch.zeros(4, 99),))]
            with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                step(broken)
        torch.manual_seed(1)
        step([dataclasses.replace(batch, chance=None) for batch in second])
        ends.append(weights(own.raw))
    assert torch.equal(*ends)


def test_frozen_puts_back_what_was_there_also_after_an_error():
    network, _ = with_norms()
    flags = [p.requires_grad for p in network.parameters()]
    assert set(flags) == {True, False}
    before = weights(network)

    def use_and_fail():
        with frozen(network) as held:
            assert held is network
            assert not any(p.requires_grad for p in network.parameters())
            x = torch.randn(4, 3, requires_grad=True)
            network(x).square().sum().backward()
            assert x.grad.abs().sum() > 0  # gradients pass through it
            assert not torch.equal(weights(network), before)
            network.register_buffer("made_inside", torch.ones(1))
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        use_and_fail()
    del network.made_inside
    assert [p.requires_grad for p in network.parameters()] == flags
    assert torch.equal(weights(network), before)


def test_both_processes_keep_equal_statistics_of_batch_norm(two_processes):
    """Each sees its own part of the batch; the player gives all of them the mean."""

    def statistics():
        torch.manual_seed(0)
        acc = accelerator()
        generator, discriminator = prepared(acc, *with_norms())
        torch.manual_seed(acc.process_index)
        real = 5 + torch.randn(4, 2)
        hidden = []
        discriminator.raw[1].register_forward_pre_hook(lambda _, args: hidden.append(args[0]))
        batch = MicroBatch(real, (torch.randn(4, 3),))
        for step, *_ in both(acc, generator, discriminator).values():
            step([batch])
        means = [h.mean(0).detach() for h in hidden[:4]]  # real, fake, r1, wgan-gp
        return weights(generator.raw, discriminator.raw), means, discriminator.raw[1].running_mean

    (first, mine, running), (second, theirs, _) = two_processes(statistics)
    assert torch.equal(first, second)
    assert not torch.allclose(mine[0], theirs[0])
    expected = torch.zeros(8)
    for a, b in zip(mine, theirs, strict=True):
        expected = 0.9 * expected + 0.1 * (a + b) / 2
    torch.testing.assert_close(running, expected)


# --- what a step is given and gives --------------------------------------------------------------


def test_a_step_returns_detached_means_over_its_micro_batches():
    acc = accelerator()
    generator, discriminator = prepared(acc, nn.Linear(3, 2), Squeezed(nn.Linear(2, 1)), lr=0.0)
    batches = window(2)
    real = torch.cat([batch.real for batch in batches])
    fake = torch.cat([generator.raw(*batch.inputs) for batch in batches]).detach()
    real_logits, fake_logits = discriminator.raw(real).detach(), discriminator.raw(fake).detach()
    due = {"r1": (7.0, lambda scores: r1_penalty(scores.critic, scores.real))}
    loss = LOSSES["wasserstein"]
    d = discriminator_step(acc, generator, discriminator, batches, loss, penalties=due)
    g = generator_step(acc, generator, discriminator, batches, loss)

    weight = discriminator.raw[0].weight.detach()
    slope = (fake - real).mean(0) + 7.0 * 2 * weight[0]  # of f - r + 7 |w|^2; none for the bias
    expected = {
        "loss/discriminator": fake_logits.mean() - real_logits.mean(),
        "logits/real": real_logits.mean(),
        "logits/fake": fake_logits.mean(),
        "sign/real": (real_logits - fake_logits).sign().mean(),
        "sign/fake": (fake_logits - real_logits).sign().mean(),
        "penalty/r1": weight.square().sum(),
        "grad_norm/discriminator": slope.norm(),
    }
    torch.testing.assert_close(d, expected)
    assert set(g) == {"loss/generator", "grad_norm/generator"}
    torch.testing.assert_close(g["loss/generator"], -fake_logits.mean())
    assert not any(value.requires_grad or value.ndim for value in (d | g).values())


def test_the_generator_sees_reals_only_where_the_loss_compares():
    asked = []
    for loss in LOSSES.values():
        reset_accelerate()
        acc = accelerator()
        generator, discriminator = prepared(acc, nn.Linear(3, 2), Squeezed(nn.Linear(2, 1)))
        calls = []
        discriminator.raw.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        generator_step(acc, generator, discriminator, window(1), loss)
        asked.append((loss.relativistic, len(calls)))
    assert set(asked) == {(False, 1), (True, 2)}


def test_every_image_is_augmented_before_it_is_judged():
    """Losses and penalties see augmented images; a penalty's slope is that of the whole way."""
    acc = accelerator()
    generator, discriminator = prepared(acc, nn.Linear(3, 2), Squeezed(nn.Linear(2, 1)), lr=0.0)
    batch, kinds = window(1)[0], []

    def tripled(images, chance):
        kinds.append(chance.key[-1])
        assert chance == batch.chance.child(kinds[-1])
        return 3 * images

    due = {name: (1.0, PENALTIES[name].term) for name in ("r1", "wgan-gp")}
    loss = LOSSES["relativistic"]
    options = {"loss": loss, "augment": tripled}
    d = discriminator_step(acc, generator, discriminator, [batch], penalties=due, **options)
    g = generator_step(acc, generator, discriminator, [batch], **options)
    judged, penalised, fooled = ["real", "fake"], ["real", "between"], ["fake", "real"]
    assert kinds == judged + penalised + fooled
    real, fake = 3 * batch.real, 3 * generator.raw(*batch.inputs).detach()
    torch.testing.assert_close(d["penalty/r1"], 9 * discriminator.raw[0].weight.square().sum())
    real_logits, fake_logits = discriminator.raw(real), discriminator.raw(fake)
    torch.testing.assert_close(
        d["loss/discriminator"], loss.discriminator(real_logits, fake_logits)
    )
    torch.testing.assert_close(g["loss/generator"], loss.generator(real_logits, fake_logits))


def test_a_micro_batch_without_a_chance_draws_its_own(two_processes):
    def drawn():
        torch.manual_seed(0)
        batches = window(2)
        return [batch.chance.uniform("penalty/alpha") for batch in batches]

    first, second = two_processes(drawn)  # seeded alike, as for equal initial weights
    assert len({tuple(u.tolist()) for u in (*first, *second)}) == 4
    assert [u.shape for u in first] == [(4,), (4,)]
    given = Chance((0,), 0, 4)
    assert MicroBatch(torch.zeros(4, 2), (), chance=given).chance is given


# --- two networks is not a special number --------------------------------------------------------


class Conditional(nn.Module):
    """Takes its class beside its input."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.embed = nn.Embedding(2, 4)
        self.layers = nn.Sequential(nn.Linear(inputs + 4, 32), nn.Tanh(), nn.Linear(32, outputs))

    def forward(self, x, labels):
        y = self.layers(torch.cat([x, self.embed(labels)], 1))
        return y.squeeze(1) if y.shape[1] == 1 else y


def test_class_conditional_training():
    centres = torch.tensor([[1.0, 0.0], [-1.0, 0.5]])
    acc = accelerator()
    adam = partial(torch.optim.Adam, betas=(0.0, 0.99))
    pair = Conditional(2, 2), Conditional(2, 1)
    generator, discriminator = prepared(acc, *pair, optimizer=adam, lr=5e-3)
    due = {"r1": (2.0, PENALTIES["r1"].term)}
    for _ in range(120):
        labels = torch.arange(32) % 2
        real = centres[labels] + 0.1 * torch.randn(32, 2)
        batches = [MicroBatch(real, (torch.randn(32, 2), labels), (labels,))]
        loss = LOSSES["non-saturating"]
        discriminator_step(acc, generator, discriminator, batches, loss, penalties=due)
        generator_step(acc, generator, discriminator, batches, loss)
    with torch.no_grad():
        for label in (0, 1):
            fake = generator.raw(torch.randn(500, 2), torch.full((500,), label))
            assert (fake.mean(0) - centres[label]).norm() < 0.3


class Pairs(nn.Module):
    """Judges an image beside the one that it was made from."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(2, 8, 3, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(128, 1)
        )

    def forward(self, image, source):
        return self.layers(torch.cat([image, source], 1)).squeeze(1)


def test_paired_image_to_image_training():
    """Turn images into their negatives: a fake is made from an image, a pair is judged."""
    acc = accelerator()
    painter = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.Conv2d(8, 1, 1), nn.Tanh())
    generator, discriminator = prepared(acc, painter, Pairs(), lr=5e-3)
    nearness = {"l1": (10.0, lambda scores: (scores.fake - scores.real).abs().flatten(1).mean(1))}
    due = {"r1": (1.0, PENALTIES["r1"].term)}
    distances = []
    for _ in range(150):
        sources = (0.9 * (2 * torch.rand(2, 8, 1, 4, 4) - 1)).unbind()
        batches = [MicroBatch(-source, (source,), (source,)) for source in sources]
        loss = LOSSES["non-saturating"]
        discriminator_step(acc, generator, discriminator, batches, loss, penalties=due)
        scalars = generator_step(acc, generator, discriminator, batches, loss, penalties=nearness)
        distances.append(scalars["penalty/l1"].item())
    assert distances[0] > 0.4
    assert max(distances[-10:]) < 0.1

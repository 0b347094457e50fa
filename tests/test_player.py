"""One network with its optimizer, scheduler and gradient scaler."""

import copy
import dataclasses
import itertools
import math
from types import SimpleNamespace

import pytest
import torch
from accelerate.utils import DistributedType
from conftest import reset_accelerate
from torch import nn
from torch.amp import GradScaler
from torch.optim.lr_scheduler import LambdaLR, LinearLR, OneCycleLR
from toys import Squeezed, accelerator, points_run, prepared, weights, window

from gan.accelerators import check_accelerator
from gan.errors import ConfigError, DivergenceError
from gan.loop import train_step
from gan.losses import LOSSES
from gan.penalties import PENALTIES, Scores
from gan.player import Player
from gan.steps import discriminator_step, generator_step

# --- one window, one update ----------------------------------------------------------------------


def classifier(seed=0, optimizer=torch.optim.Adam, lr=0.1, **options):
    """One player: the pattern is the same with one network."""
    torch.manual_seed(seed)
    acc = accelerator()
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = optimizer(model.parameters(), lr=lr)
    scheduler = LinearLR(optimizer, 1.0, 0.5, total_iters=10)
    return acc, Player(acc, *acc.prepare(model, optimizer, scheduler), **options)


def test_one_player_trains_one_network_as_plain_torch_does():
    acc, player = classifier()
    plain = copy.deepcopy(player.raw)
    optimizer = torch.optim.Adam(plain.parameters(), lr=0.1)
    scheduler = LinearLR(optimizer, 1.0, 0.5, total_iters=10)
    for _ in range(5):
        x, y = torch.randn(6, 4), torch.randint(3, (6,))
        for i in range(3):
            with player.micro_batch(i, of=3):
                part = slice(2 * i, 2 * i + 2)
                acc.backward(nn.functional.cross_entropy(player.model(x[part]), y[part]))
        norm = player.step()
        nn.functional.cross_entropy(plain(x), y).backward()
        expected = torch.nn.utils.clip_grad_norm_(plain.parameters(), math.inf)
        torch.testing.assert_close(norm, expected)
        optimizer.step(), scheduler.step(), optimizer.zero_grad()
        torch.testing.assert_close(weights(player.raw), weights(plain))
        assert player.lr == scheduler.get_last_lr()[0]
    assert (player.updates, player.skipped) == (5, 0)


def test_settings_of_the_accelerator_are_lent_for_a_micro_batch_and_put_back():
    acc, player = classifier()
    acc.scaler = lent = GradScaler("cpu")
    with player.micro_batch(0, of=2):
        assert (acc.sync_gradients, acc.gradient_accumulation_steps) == (False, 2)
        assert acc.scaler is None
    with player.micro_batch(1, of=2):
        assert (acc.sync_gradients, acc.gradient_accumulation_steps) == (True, 2)
    assert (acc.sync_gradients, acc.gradient_accumulation_steps) == (True, 1)
    assert acc.scaler is lent


@pytest.mark.parametrize("clip_norm", [None, 1e-3, 1e3])
def test_clipping(clip_norm):
    acc, player = classifier(optimizer=torch.optim.SGD, lr=1.0, clip_norm=clip_norm)
    plain = copy.deepcopy(player.raw)
    x = torch.randn(6, 4)
    with player.micro_batch(0):
        acc.backward(player.model(x).square().sum())
    norm = player.step()
    plain(x).square().sum().backward()
    moved = (weights(plain) - weights(player.raw)).float()
    full = torch.cat([p.grad.flatten() for p in plain.parameters()])
    torch.testing.assert_close(norm, full.norm())  # before clipping
    assert 1e-3 < norm < 1e3
    expected = full * (clip_norm / norm if clip_norm == 1e-3 else 1)
    torch.testing.assert_close(moved, expected, rtol=1e-3, atol=1e-7)


def test_a_step_without_a_gradient_is_refused():
    _, player = classifier()
    with pytest.raises(ConfigError) as error:
        player.step()
    assert str(error.value) == "network: no parameter has a gradient; does the loss depend on it?"


def test_check_finite_names_the_network_and_the_step():
    _, player = classifier(name="generator")
    player.check_finite(7)
    player.raw[2].weight.data[1, 3] = math.inf
    with pytest.raises(DivergenceError) as error:
        player.check_finite(7)
    assert str(error.value) == "step 7: a weight of the generator is not finite"


def test_state_goes_there_and_back():
    acc, player = classifier()
    player.scaler = GradScaler("cpu", init_scale=64.0, growth_interval=3)
    train(acc, player, 4)
    saved = copy.deepcopy({**player.state_dict(), "weights": player.raw.state_dict()})
    assert saved["scaler"]["scale"] == 128.0
    assert saved["scaler"]["_growth_tracker"] == 1
    train(acc, player, 4, start=4)
    expected = weights(player.raw), player.lr, player.scaler.get_scale(), player.updates
    assert expected[1:] == (pytest.approx(0.1 * 0.6), 256.0, 8)

    reset_accelerate()
    acc, player = classifier(seed=1)
    player.scaler = GradScaler("cpu", init_scale=2.0, growth_interval=3)
    player.raw.load_state_dict(saved["weights"])
    player.load_state_dict(saved)
    train(acc, player, 4, start=4)
    assert torch.equal(weights(player.raw), expected[0])
    assert (player.lr, player.scaler.get_scale(), player.updates) == expected[1:]


def train(acc, player, updates, start=0):
    for step in range(start, start + updates):
        generator = torch.Generator().manual_seed(step)
        with player.micro_batch(0):
            acc.backward(player.model(torch.randn(6, 4, generator=generator)).square().mean())
        player.step()


# --- fp16: one scaler for each network -----------------------------------------------------------

ADAMS = {
    "plain": {"foreach": False, "fused": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
SCALE = 1024.0


class Half:
    """A pair with torch's CPU gradient scaler, as on a GPU under fp16, and LR schedules."""

    def __init__(self, scaled=True, adam="plain", **options):
        torch.manual_seed(0)
        self.acc = accelerator()
        self.acc.scaler = GradScaler("cpu", init_scale=SCALE) if scaled else None
        networks = (
            nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)),
            Squeezed(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)),
        )
        optimizers = [torch.optim.Adam(n.parameters(), lr=0.1, **ADAMS[adam]) for n in networks]
        schedulers = [LambdaLR(o, lambda updates: 0.5**updates) for o in optimizers]
        both = self.acc.prepare(*networks, *optimizers, *schedulers)
        self.generator = Player(self.acc, *both[::2], name="generator", **options)
        self.discriminator = Player(self.acc, *both[1::2], name="discriminator", **options)
        self.factor = {"discriminator": 1.0, "generator": 1.0}
        loss = LOSSES["relativistic"]
        self.loss = dataclasses.replace(
            loss,
            discriminator=lambda r, f: self.factor["discriminator"] * loss.discriminator(r, f),
            generator=lambda r, f: self.factor["generator"] * loss.generator(r, f),
        )
        self.batches = iter([window() for _ in range(20)])

    def step(self, name, overflow=False, penalties=None):
        """One step of a network; its gradient overflows fp32 once it is multiplied by the scale."""
        step = {"discriminator": discriminator_step, "generator": generator_step}[name]
        self.factor[name] = 1e36 * overflow if overflow else 1.0
        pair = self.generator, self.discriminator
        return step(self.acc, *pair, next(self.batches), self.loss, penalties=penalties)

    def player(self, name):
        return getattr(self, name)


OTHER = {"discriminator": "generator", "generator": "discriminator"}


@pytest.mark.parametrize("adam", ADAMS)
@pytest.mark.parametrize("name", ["discriminator", "generator"])
def test_an_overflow_skips_its_own_network_and_scheduler_only(name, adam):
    half, full = Half(adam=adam), Half(scaled=False, adam=adam)
    for pair in (half, full):
        pair.step("discriminator")
        pair.step("generator")
    own, other = half.player(name), half.player(OTHER[name])
    before = weights(own.raw)

    scalars = half.step(name, overflow=True)
    next(full.batches)  # which the one without a scaler leaves out
    assert scalars[f"grad_norm/{name}"] == 0
    assert torch.equal(weights(own.raw), before)
    assert (own.updates, own.skipped, own.lr) == (1, 1, 0.05)
    assert own.scaler.get_scale() == SCALE / 2
    assert (other.updates, other.skipped, other.lr) == (1, 0, 0.05)
    assert other.scaler.get_scale() == SCALE

    for pair in (half, full):  # then the next iteration works, and both updates have their size
        pair.step(OTHER[name])
        pair.step(name)
    for player in (name, OTHER[name]):
        assert torch.equal(weights(half.player(player).raw), weights(full.player(player).raw))
        assert half.player(player).updates == full.player(player).updates == 2
        assert half.player(player).lr == full.player(player).lr == 0.025


def test_scales_grow_apart():
    half = Half()
    half.discriminator.scaler.set_growth_interval(2)
    for overflow in (False, False, True, False):
        half.step("discriminator", overflow)
        half.step("generator")
    assert half.discriminator.scaler.get_scale() == SCALE  # grown once, backed off once
    assert half.generator.scaler.get_scale() == SCALE
    assert half.acc.scaler is not half.generator.scaler is not half.discriminator.scaler
    assert (half.discriminator.updates, half.discriminator.skipped) == (3, 1)


@pytest.mark.parametrize("adam", ADAMS)
def test_clipping_under_a_scaler_is_that_of_fp32(adam):
    half, full = (Half(scaled, adam, clip_norm=0.05) for scaled in (True, False))
    for _ in range(3):
        for name in ("discriminator", "generator"):
            mine, plain = half.step(name), full.step(name)
            assert mine[f"grad_norm/{name}"] == plain[f"grad_norm/{name}"] > 0.05
    for name in OTHER:
        assert torch.equal(weights(half.player(name).raw), weights(full.player(name).raw))


def test_a_penalty_under_a_scaler_is_that_of_fp32():
    due = {"r1": (5.0, PENALTIES["r1"].term), "wgan-gp": (5.0, PENALTIES["wgan-gp"].term)}
    half, full = Half(), Half(scaled=False)
    for pair in (half, full):
        torch.manual_seed(3)
        pair.step("discriminator", penalties=due)
    for mine, plain in zip(
        half.discriminator.raw.parameters(), full.discriminator.raw.parameters(), strict=True
    ):
        torch.testing.assert_close(mine, plain, rtol=1e-6, atol=1e-6)


def test_a_gradient_that_no_scale_makes_finite_is_a_divergence():
    half = Half()
    half.discriminator.scaler = GradScaler("cpu")
    before = weights(half.discriminator.raw)
    half.batches = itertools.repeat(window())
    for _ in range(30):
        half.step("discriminator", overflow=math.inf)
    with pytest.raises(DivergenceError) as error:
        half.step("discriminator", overflow=math.inf)
    assert str(error.value) == (
        "update 31: the gradient of the discriminator is not finite, "
        "even with a loss scale of 3e-05"
    )
    assert torch.equal(weights(half.discriminator.raw), before)
    assert all(p.grad is None for p in half.discriminator.raw.parameters())


@pytest.mark.parametrize("of", [1, 2])
def test_a_skipped_update_leaves_the_statistics_of_batch_norm_too(of):
    acc = accelerator()
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    player = Player(acc, *acc.prepare(model, torch.optim.SGD(model.parameters(), 0.1)))
    player.scaler = GradScaler("cpu")
    before = weights(player.raw)
    for factor in (math.inf, 1.0):
        for i in range(of):
            with player.micro_batch(i, of):
                acc.backward(player.model(factor * torch.randn(6, 4)).square().mean())
        player.step()
        assert torch.equal(weights(player.raw), before) == (factor == math.inf)
    assert (player.updates, player.skipped) == (1, 1)
    assert weights(player.raw).isfinite().all()


def test_only_the_last_micro_batch_overflows():
    half = Half()
    calls = itertools.count()
    steady = half.loss.discriminator
    loss = dataclasses.replace(
        half.loss, discriminator=lambda r, f: steady(r, f) * (1e36 if next(calls) == 2 else 1.0)
    )
    before = weights(half.discriminator.raw)
    pair = half.generator, half.discriminator
    discriminator_step(half.acc, *pair, window(3), loss)
    assert torch.equal(weights(half.discriminator.raw), before)
    assert half.discriminator.skipped == 1


def test_an_overflow_in_one_process_skips_in_all(two_processes):
    def skipped():
        half = Half()
        rank = half.acc.process_index
        before = weights(half.discriminator.raw)
        half.step("discriminator", overflow=rank == 1)
        moved = not torch.equal(weights(half.discriminator.raw), before)
        half.step("generator")
        half.step("discriminator")
        own = half.discriminator
        return (
            moved,
            own.updates,
            own.skipped,
            own.scaler.get_scale(),
            half.generator.updates,
            [weights(half.generator.raw, own.raw).tolist()],
        )

    first, second = two_processes(skipped)
    assert first == second
    assert first[:5] == (False, 1, 1, SCALE / 2, 1)


def test_a_state_with_scales_goes_there_and_back():
    half = Half()
    half.step("discriminator", overflow=True)
    half.step("generator")
    states = copy.deepcopy([player.state_dict() for player in (half.generator, half.discriminator)])
    again = Half()
    again.generator.load_state_dict(states[0])
    again.discriminator.load_state_dict(states[1])
    assert again.generator.scaler.get_scale() == SCALE
    assert again.discriminator.scaler.get_scale() == SCALE / 2
    assert (again.discriminator.updates, again.discriminator.skipped) == (0, 1)


@pytest.mark.gpu
def test_fp16_on_a_gpu_skips_one_network_alone():
    run = points_run(mixed_precision="fp16", penalties=["r1", "wgan-gp"], steps=40)
    for _ in range(20):  # until the scales have found their size
        train_step(run)
    loss, own, other = run.loss, run.discriminator, run.generator
    before = own.updates, own.skipped, own.scaler.get_scale(), weights(own.raw)
    others = other.updates, other.skipped, other.scaler.get_scale()
    run.loss = dataclasses.replace(loss, discriminator=lambda r, f: 1e36 * loss.discriminator(r, f))
    train_step(run)
    assert (own.updates, own.skipped) == (before[0], before[1] + 1)
    assert own.scaler.get_scale() == before[2] / 2
    assert torch.equal(weights(own.raw), before[3])
    assert (other.updates, other.skipped, other.scaler.get_scale()) == (others[0] + 1, *others[1:])
    run.loss = loss
    for _ in range(5):
        train_step(run)
    assert own.updates == before[0] + 5
    assert weights(own.raw, other.raw, run.ema.module).isfinite().all()


# --- bf16 ----------------------------------------------------------------------------------------


def critic_gradient(precision, through_full_precision=True):
    """Gradient of a penalty in the weights of a discriminator prepared for a precision."""
    reset_accelerate()
    torch.manual_seed(0)
    acc = accelerator(mixed_precision=precision)
    discriminator = Squeezed(
        nn.Conv2d(3, 8, 3, 2, 1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(128, 1)
    )
    _, player = prepared(acc, nn.Linear(3, 2), discriminator)
    real, fake = torch.randn(2, 4, 3, 8, 8)
    critic = player.full_precision if through_full_precision else player.model
    chance = SimpleNamespace(uniform=lambda _: torch.linspace(0, 1, 4))
    scores = Scores(real, fake, None, torch.zeros(4), critic, chance)
    gradients = []
    for name in ("r1", "r2", "wgan-gp"):
        player.raw.zero_grad()
        PENALTIES[name].term(scores).mean().backward()
        gradients.append(
            torch.cat([p.grad.flatten() for p in player.raw.parameters() if p.grad is not None])
        )
    assert player.model(real).dtype == torch.float32
    return gradients


@pytest.mark.parametrize("clip_norm", [None, 0.5])
def test_the_norm_of_a_gradient_is_measured_where_it_is_needed(clip_norm):
    ends = []
    for measure in (True, False):
        acc, player = classifier(clip_norm=clip_norm)
        with player.micro_batch(0):
            acc.backward(player.model(torch.ones(2, 4)).square().sum())
        norm = player.step(measure)
        assert (norm is None) is (not measure and clip_norm is None)
        ends.append(weights(player.raw))
    assert torch.equal(*ends)


def test_under_bf16_a_penalty_has_the_gradient_of_fp32():
    exact = critic_gradient("no")
    for mine, full in zip(critic_gradient("bf16"), exact, strict=True):
        assert (mine - full).norm() <= 1e-4 * full.norm()
    for rough, full in zip(critic_gradient("bf16", False), exact, strict=True):
        assert (rough - full).norm() > 1e-4 * full.norm()  # so the test can fail


def test_under_bf16_a_step_takes_its_penalty_in_fp32():
    """All the way through the step: with no other loss, the update is the penalty's."""
    ends = {}
    for precision in ("no", "bf16"):
        reset_accelerate()
        torch.manual_seed(0)
        acc = accelerator(mixed_precision=precision)
        discriminator = Squeezed(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        start = weights(discriminator)
        options = {"optimizer": torch.optim.SGD, "lr": 1.0}
        pair = prepared(acc, nn.Linear(3, 2), discriminator, **options)
        silent = dataclasses.replace(
            LOSSES["wasserstein"], discriminator=lambda r, f: 0 * (r + f).mean()
        )
        due = {"r1": (1.0, PENALTIES["r1"].term)}
        torch.manual_seed(1)
        discriminator_step(acc, *pair, window(), silent, penalties=due)
        ends[precision] = weights(discriminator) - start
    assert ends["no"].norm() > 0.01
    assert (ends["bf16"] - ends["no"]).norm() <= 1e-4 * ends["no"].norm()


# --- schedulers ----------------------------------------------------------------------------------


def lrs(steps, **options):
    """Learning rates of both networks before every step and after the last."""
    run = points_run(steps=steps, **options)
    seen = [(run.generator.lr, run.discriminator.lr)]
    for _ in range(steps):
        train_step(run)
        seen.append((run.generator.lr, run.discriminator.lr))
    counts = run.generator.scheduler.last_epoch, run.discriminator.scheduler.last_epoch
    assert counts == (run.generator.updates, run.discriminator.updates)
    assert counts == (steps, steps * run.config.n_critic)
    return seen


CUTS = [
    {"n_critic": n_critic, "gradient_accumulation_steps": k, "batch_size": 4 // k}
    for n_critic, k in itertools.product((1, 2), (1, 2))
]


def expected_lrs(steps):
    return [pytest.approx((0.003 - 0.002 * i / steps,) * 2, rel=1e-12) for i in range(steps + 1)]


def test_a_scheduler_moves_once_for_each_update_and_ends_at_its_end():
    for cut in CUTS:
        assert lrs(5, **cut) == expected_lrs(5), cut


def test_a_scheduler_moves_no_faster_in_two_processes(two_processes):
    for rank in two_processes(lambda: [lrs(5, **cut) for cut in CUTS]):
        assert rank == [expected_lrs(5)] * len(CUTS)


@pytest.mark.parametrize("built_on", ["raw optimizer", "prepared optimizer"])
@pytest.mark.parametrize("is_prepared", [True, False])
def test_a_scheduler_of_ones_own_however_it_was_made(built_on, is_prepared):
    acc = accelerator()
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if built_on == "raw optimizer":
        scheduler = OneCycleLR(optimizer, max_lr=0.2, total_steps=6)
        model, optimizer = acc.prepare(model, optimizer)
    else:
        model, optimizer = acc.prepare(model, optimizer)
        scheduler = OneCycleLR(optimizer, max_lr=0.2, total_steps=6)
    player = Player(acc, model, optimizer, acc.prepare(scheduler) if is_prepared else scheduler)
    train(acc, player, 5)
    assert scheduler.last_epoch == 5
    assert player.lr == pytest.approx(0.2 / 25 / 1e4)  # OneCycle's end


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("FSDP", "sharded parameters cannot be differentiated twice, as penalties need"),
        ("DEEPSPEED", "its engine steps one model, and a GAN's backward passes two"),
        ("MEGATRON_LM", "it splits one transformer, not two networks"),
        ("XLA", "its optimizers step through torch_xla, once for all networks"),
    ],
)
def test_what_cannot_train_two_networks_is_refused(kind, reason):
    acc = SimpleNamespace(distributed_type=DistributedType(kind), mixed_precision="no")
    with pytest.raises(ConfigError) as error:
        check_accelerator(acc)
    assert str(error.value) == (
        f"{kind} cannot train two networks against each other: {reason}; "
        "use plain data parallelism (accelerate launch --multi_gpu, or torchrun)"
    )


def refusal(*args, **options):
    with pytest.raises(ConfigError) as error:
        Player(*args, **options)
    return str(error.value)


def test_a_player_looks_at_its_accelerator(monkeypatch):
    acc = accelerator()
    model, optimizer = acc.prepare(*(m := nn.Linear(2, 1), torch.optim.SGD(m.parameters(), 0.1)))
    monkeypatch.setattr(type(acc), "distributed_type", DistributedType.FSDP)
    assert refusal(acc, model, optimizer).startswith("FSDP cannot train two networks")


def test_fp16_on_a_cpu_is_refused():
    acc = accelerator(mixed_precision="fp16")
    with pytest.raises(ConfigError) as error:
        check_accelerator(acc)
    assert str(error.value) == (
        "mixed_precision: fp16 on cpu would silently run in fp32; use bf16 or no"
    )


def test_fp8_is_refused():
    alone = {"distributed_type": DistributedType.NO, "num_processes": 1}
    with pytest.raises(ConfigError) as error:
        check_accelerator(SimpleNamespace(**alone, mixed_precision="fp8"))
    assert str(error.value) == "mixed_precision: fp8 is not one of no, bf16, fp16"


def test_processes_that_do_not_know_of_each_other_are_refused(monkeypatch):
    acc = accelerator()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError) as error:
        check_accelerator(acc)
    assert str(error.value) == (
        "2 processes were launched, but the Accelerator sees 1, so each would train alone; launch "
        "them with torchrun or accelerate launch, and on CPUs give Accelerator(cpu=True)"
    )


def test_a_foreign_optimizer_is_refused():
    acc = accelerator()
    mine, theirs = nn.Linear(2, 1), nn.Linear(2, 1)
    both = torch.optim.SGD([*mine.parameters(), *theirs.parameters()], 0.1)
    other = torch.optim.SGD(theirs.parameters(), 0.1)
    mine, both, other = acc.prepare(mine, both, other)
    for optimizer in (both, other):
        assert refusal(acc, mine, optimizer, name="generator") == (
            "generator: its optimizer holds parameters of another network; "
            "give every network an optimizer of its own"
        )


def test_a_foreign_scheduler_is_refused():
    acc = accelerator()
    model = nn.Linear(2, 1)
    mine, other = (torch.optim.SGD(model.parameters(), 0.1) for _ in range(2))
    scheduler = LinearLR(other)
    model, mine, other, scheduler = acc.prepare(model, mine, other, scheduler)
    Player(acc, model, other, scheduler)
    assert refusal(acc, model, mine, scheduler, name="generator") == (
        "generator: its scheduler belongs to another optimizer"
    )


def test_an_unprepared_network_under_bf16_is_refused():
    acc = accelerator(mixed_precision="bf16")
    model = nn.Linear(2, 1)
    optimizer = acc.prepare(torch.optim.SGD(model.parameters(), 0.1))
    assert refusal(acc, model, optimizer, name="generator") == (
        "generator: under bf16 the network must be the one that accelerator.prepare returned, "
        "or it silently runs in fp32"
    )


def test_what_two_processes_cannot_have_is_refused(two_processes):
    def refusals():
        from accelerate.utils import DistributedDataParallelKwargs as DDP

        acc = accelerator(kwargs_handlers=[DDP(static_graph=True)])
        model = nn.Linear(2, 1)
        optimizer = acc.prepare(torch.optim.SGD(model.parameters(), 0.1))
        return (
            refusal(acc, model, optimizer, name="generator"),
            refusal(acc, acc.prepare(model), optimizer, name="generator"),
        )

    for unprepared, static in two_processes(refusals):
        assert unprepared == (
            "generator: with 2 processes the network must be the one that accelerator.prepare "
            "returned, or its gradients are not averaged"
        )
        assert static == (
            "generator: DDP's static_graph gives wrong gradients with penalties and alternating "
            "networks; leave it off"
        )


class Forked(nn.Module):
    """Uses one of its layers where it is told to."""

    def __init__(self):
        super().__init__()
        self.always, self.sometimes, self.on = nn.Linear(2, 1), nn.Linear(2, 1), True

    def forward(self, x):
        return self.always(x) + (self.sometimes(x) if self.on else 0)


def forked(**options):
    """Three updates of it, of which the second leaves a layer out; or why not."""
    torch.manual_seed(0)
    acc, model = accelerator(**options), Forked()
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    player = Player(acc, *acc.prepare(model, optimizer), name="discriminator")
    images = torch.randn(8, 2).chunk(acc.num_processes)[acc.process_index]
    for update in range(3):
        player.raw.on = update != 1
        with player.micro_batch(0):
            acc.backward(player.model(images).square().mean())
        try:
            player.step()
        except ConfigError as error:
            assert all(p.grad is None for p in model.parameters())
            return str(error)
    return weights(player.raw)


def test_two_processes_do_without_a_layer_if_they_were_told_and_say_so_if_not(two_processes):
    """DDP averages nothing where it waits for a gradient, and says so an update later."""
    from accelerate.utils import DistributedDataParallelKwargs as DDP

    alone = forked()
    told = DDP(find_unused_parameters=True)
    for refusal, mine in two_processes(lambda: (forked(), forked(kwargs_handlers=[told]))):
        assert refusal == (
            "discriminator: with 2 processes every parameter must take part in every update, but "
            "the loss does not depend on sometimes.weight, sometimes.bias; use them, or tell DDP "
            "of it, which costs a walk through the graph each forward: gan train "
            "--find_unused_parameters, or, for an Accelerator of your own, kwargs_handlers="
            "[DistributedDataParallelKwargs(find_unused_parameters=True)]"
        )
        assert (mine - alone).abs().max() <= 1e-6

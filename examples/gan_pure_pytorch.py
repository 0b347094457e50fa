"""A GAN on handwritten digits, in plain PyTorch.

The same training in three ways, to be read side by side; all three end with the same weights:

    diff --side-by-side gan_pure_pytorch.py gan_accelerate.py
    diff --side-by-side gan_pure_pytorch.py gan_toolkit.py

The relativistic loss, a lazy R1 penalty, two micro-batches an update, for each network a learning
rate that falls to a tenth, and an averaged generator.

This one runs in one process.
"""

import argparse
import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import softplus
from torch.optim import Adam
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader

Z_DIM = 16
BATCH_SIZE, MICRO_BATCHES = 32, 2
LR, BETAS = 2e-3, (0.0, 0.99)
GAMMA, R1_EVERY = 1.0, 4
HALF_LIFE = 2000  # of the average, in images


def build_generator():
    return nn.Sequential(
        nn.Linear(Z_DIM, 128),
        nn.ReLU(),
        nn.Linear(128, 64),
        nn.Tanh(),
        nn.Unflatten(1, (1, 8, 8)),
    )


def build_discriminator():
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1), nn.Flatten(0)
    )


def digits():
    """1,797 images of 8x8 pixels, from -1 to 1."""
    return torch.tensor(load_digits().images, dtype=torch.float32)[:, None] / 8 - 1


def endless(loader):
    while True:
        yield from loader


def r1_penalty(discriminator, real):
    """Squared norm of the discriminator's gradient at each real image."""
    real = real.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(discriminator(real).sum(), real, create_graph=True)
    return gradient.flatten(1).square().sum(1)


def train(generator, discriminator, images, steps):
    """Train both networks and return the averaged generator."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    generator, discriminator = generator.to(device), discriminator.to(device)
    g_optimizer = Adam(generator.parameters(), LR, BETAS)
    d_optimizer = Adam(discriminator.parameters(), LR, BETAS)
    g_scheduler = LinearLR(g_optimizer, 1.0, 0.1, total_iters=steps)
    d_scheduler = LinearLR(d_optimizer, 1.0, 0.1, total_iters=steps)
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(images, BATCH_SIZE, shuffle=True, drop_last=True, generator=order)

    average = copy.deepcopy(generator).requires_grad_(False).eval()
    keep = 0.5 ** (BATCH_SIZE * MICRO_BATCHES / HALF_LIFE)
    noise = torch.Generator().manual_seed(2)
    reals = endless(loader)

    for step in range(steps):
        window = [
            (next(reals).to(device), torch.randn(BATCH_SIZE, Z_DIM, generator=noise).to(device))
            for _ in range(MICRO_BATCHES)
        ]

        # One update of the discriminator.
        d_loss = 0.0
        for real, z in window:
            with torch.no_grad():
                fake = generator(z)
            real_logits, fake_logits = discriminator(real), discriminator(fake)
            objective = softplus(fake_logits - real_logits).mean()
            d_loss += objective.detach() / MICRO_BATCHES
            if step % R1_EVERY == 0:
                penalty = r1_penalty(discriminator, real).mean()
                objective = objective + R1_EVERY * GAMMA / 2 * penalty
            (objective / MICRO_BATCHES).backward()
        d_optimizer.step()
        d_scheduler.step()
        d_optimizer.zero_grad()

        # One update of the generator, for which the discriminator holds still.
        g_loss = 0.0
        discriminator.requires_grad_(False)
        for real, z in window:
            objective = softplus(discriminator(real) - discriminator(generator(z))).mean()
            g_loss += objective.detach() / MICRO_BATCHES
            (objective / MICRO_BATCHES).backward()
        discriminator.requires_grad_(True)
        g_optimizer.step()
        g_scheduler.step()
        g_optimizer.zero_grad()

        with torch.no_grad():
            for mine, new in zip(average.parameters(), generator.parameters(), strict=True):
                mine.lerp_(new, 1 - keep)

        if (step + 1) % 100 == 0:
            print(f"step {step + 1:4d}: discriminator {d_loss:.3f}, generator {g_loss:.3f}")

    return average


def main(arguments=None):
    parser = argparse.ArgumentParser(description="A GAN on handwritten digits in plain PyTorch.")
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args(arguments).steps

    torch.manual_seed(0)
    train(build_generator(), build_discriminator(), digits(), steps)


if __name__ == "__main__":
    main()

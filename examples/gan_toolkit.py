"""A GAN on handwritten digits, with this toolkit.

The same training in three ways, to be read side by side; all three end with the same weights:

    diff --side-by-side gan_pure_pytorch.py gan_accelerate.py
    diff --side-by-side gan_pure_pytorch.py gan_toolkit.py

The relativistic loss, a lazy R1 penalty, two micro-batches an update, for each network a learning
rate that falls to a tenth, and an averaged generator.

This one also runs in several processes (`accelerate launch`), in bf16, in fp16 on a GPU, and
compiled.
"""

import argparse

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.optim import Adam
from torch.optim.lr_scheduler import LinearLR
from torch.utils.data import DataLoader

from gan import EMA, LOSSES, PENALTIES, MicroBatch, Player, discriminator_step, generator_step

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


def train(generator, discriminator, images, steps):
    """Train both networks and return the averaged generator."""
    accelerator = Accelerator()
    g_optimizer = Adam(generator.parameters(), LR, BETAS)
    d_optimizer = Adam(discriminator.parameters(), LR, BETAS)
    g_scheduler = LinearLR(g_optimizer, 1.0, 0.1, total_iters=steps)
    d_scheduler = LinearLR(d_optimizer, 1.0, 0.1, total_iters=steps)
    order = torch.Generator().manual_seed(1)
    loader = DataLoader(images, BATCH_SIZE, shuffle=True, drop_last=True, generator=order)
    generator, discriminator, g_optimizer, d_optimizer, g_scheduler, d_scheduler, loader = (
        accelerator.prepare(
            generator, discriminator, g_optimizer, d_optimizer, g_scheduler, d_scheduler, loader
        )
    )
    generator = Player(accelerator, generator, g_optimizer, g_scheduler)
    discriminator = Player(accelerator, discriminator, d_optimizer, d_scheduler)

    average = EMA(generator.raw, HALF_LIFE, rampup=None)
    images_per_step = BATCH_SIZE * MICRO_BATCHES * accelerator.num_processes
    noise = torch.Generator().manual_seed(2 + accelerator.process_index)
    reals = endless(loader)

    for step in range(steps):
        window = [
            MicroBatch(
                next(reals),
                (torch.randn(BATCH_SIZE, Z_DIM, generator=noise).to(accelerator.device),),
            )
            for _ in range(MICRO_BATCHES)
        ]
        loss, due = LOSSES["relativistic"], {}
        if step % R1_EVERY == 0:
            due["r1"] = R1_EVERY * GAMMA / 2, PENALTIES["r1"].term

        scalars = discriminator_step(
            accelerator, generator, discriminator, window, loss, penalties=due
        )
        scalars |= generator_step(accelerator, generator, discriminator, window, loss)

        average.update(generator.raw, (step + 1) * images_per_step, steps * images_per_step)

        if (step + 1) % 100 == 0:
            d_loss, g_loss = scalars["loss/discriminator"], scalars["loss/generator"]
            accelerator.print(
                f"step {step + 1:4d}: discriminator {d_loss:.3f}, generator {g_loss:.3f}"
            )

    return average.module


def main(arguments=None):
    parser = argparse.ArgumentParser(description="A GAN on handwritten digits with this toolkit.")
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args(arguments).steps

    torch.manual_seed(0)
    train(build_generator(), build_discriminator(), digits(), steps)


if __name__ == "__main__":
    main()

"""The smallest loop of one's own: own networks, own optimizers, one prepare, two Players.

It runs as it is in several processes, in mixed precision and compiled (`accelerate launch`).
"""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torchvision.utils import save_image

import gan

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=500)
parser.add_argument("--out", default="digits.png")
args = parser.parse_args()

accelerator = Accelerator()
torch.manual_seed(0)
generator = nn.Sequential(
    nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 64), nn.Tanh(), nn.Unflatten(1, (1, 8, 8))
)
discriminator = nn.Sequential(
    nn.Flatten(), nn.Linear(64, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1), nn.Flatten(0)
)
g_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.0, 0.99))
d_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.0, 0.99))
digits = gan.open_data("digits")
order = gan.EndlessBatches(len(digits), batch_size=64, seed=0)

generator, discriminator, g_optimizer, d_optimizer, loader = accelerator.prepare(
    generator, discriminator, g_optimizer, d_optimizer, gan.data_loader(digits, order)
)
generator = gan.Player(accelerator, generator, g_optimizer, name="generator")
discriminator = gan.Player(accelerator, discriminator, d_optimizer, name="discriminator")
processes, rank = accelerator.num_processes, accelerator.process_index
reals = gan.Stream(loader, order, num_processes=processes, process_index=rank)
ema = gan.EMA(generator.raw, half_life=5000)
loss, penalties = gan.LOSSES["relativistic"], {"r1": (0.5, gan.PENALTIES["r1"].term)}

for step in range(1, args.steps + 1):
    real, _ = next(reals)
    chance = gan.Chance((0, step), 64 * rank, 64 * rank + 64, accelerator.device)
    window = [gan.MicroBatch(real, (chance.normal("z", 32),), chance=chance)]
    d = gan.discriminator_step(
        accelerator, generator, discriminator, window, loss, penalties=penalties
    )
    g = gan.generator_step(accelerator, generator, discriminator, window, loss)
    ema.update(generator.raw, 64 * processes * step, 64 * processes * args.steps)
    if step % 100 == 0:
        accelerator.print(step, f"{d['loss/discriminator']:.3f} {g['loss/generator']:.3f}")

if accelerator.is_main_process:
    save_image(ema.module(torch.randn(64, 32, device=accelerator.device)) / 2 + 0.5, args.out)

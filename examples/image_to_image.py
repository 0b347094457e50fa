"""Image to image: from pairs, learn to turn the first image of a pair into the second.

    python examples/image_to_image.py                               # colours grey photographs
    python examples/image_to_image.py --data path/to/pairs          # with folders A and B in it
    python examples/image_to_image.py --data path/to/images --pairs side-by-side

Beside `gan_toolkit.py`: the generator gets an image instead of z, the discriminator sees that image
beside the real or the made one, and an L1 term of the generator ties what it makes to its target.

Reference: Isola et al. 2017, arXiv 1611.07004; here with R1, and without dropout.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import nn

import gan
from gan.sampling import picture, save_picture


def conv(inputs, outputs, size=3, stride=1):
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=1)
    return nn.Sequential(layer, nn.GroupNorm(8, outputs), nn.LeakyReLU(0.2))


class UNet(nn.Module):
    """Halves the image three times, and doubles it again beside what it was at each size."""

    def __init__(self, channels, width):
        super().__init__()
        steps = [(channels, width), (width, 2 * width), (2 * width, 4 * width)]
        self.down = nn.ModuleList(conv(*step, size=4, stride=2) for step in steps)
        steps = [(4 * width, 2 * width), (4 * width, width), (2 * width, width)]
        self.up = nn.ModuleList(conv(*step) for step in steps)
        self.last = nn.Conv2d(width + channels, channels, 3, padding=1)

    def forward(self, image):
        seen = [image]
        for down in self.down:
            seen.append(down(seen[-1]))
        x = seen.pop()
        for up in self.up:
            x = nn.functional.interpolate(up(x), scale_factor=2)
            x = torch.cat([x, seen.pop()], dim=1)
        return self.last(x).tanh()


class PatchDiscriminator(nn.Module):
    """Judges each patch of an image beside the one it was made from; their mean is the logit."""

    def __init__(self, channels, width):
        super().__init__()
        self.patches = nn.Sequential(
            conv(2 * channels, width, size=4, stride=2),
            conv(width, 2 * width, size=4, stride=2),
            nn.Conv2d(2 * width, 1, 3, padding=1),
        )

    def forward(self, image, condition):
        return self.patches(torch.cat([condition, image], dim=1)).mean((1, 2, 3))


def l1(scores):
    return (scores.fake - scores.real).abs().mean((1, 2, 3))


def make_pairs(folder, size=32):
    """Patches of scikit-learn's two photographs, grey in A and coloured in B.

    A strip of each, through the middle of what it shows, is kept for testing.
    """
    first, end = 96, 136
    for number, pixels in enumerate(load_sample_images().images):
        photo = Image.fromarray(pixels).reduce(2)
        for top in range(0, photo.height - size, 8):
            for left in range(0, photo.width - size, 8):
                inside = first <= left and left + size <= end
                if not inside and first < left + size and left < end:
                    continue  # seen in part
                patch = photo.crop((left, top, left + size, top + size))
                split = "test" if inside else "train"
                for side, image in ("A", patch.convert("L")), ("B", patch):
                    path = folder / split / side / f"{number}-{top}-{left}.png"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    image.save(path)


def open_pairs(args):
    """Pairs to learn from, and others to look at: of the test split, where there is one."""
    options = {"pairs": args.pairs, "resolution": args.resolution, "channels": args.channels}
    if args.data is None:
        with tempfile.TemporaryDirectory() as folder:
            make_pairs(Path(folder))
            splits = ("train", "test")
            return [gan.open_data(folder, split=s, no_cache=True, **options) for s in splits]
    data = gan.open_data(args.data, **options)
    try:
        return data, gan.open_data(args.data, split="test", **options)
    except gan.GanError:
        return data, data


def train(args):
    accelerator = Accelerator()
    torch.manual_seed(args.seed)
    data, held_out = open_pairs(args)
    channels = data.shape[0] // 2  # the two images of a pair are stacked
    if any(side % 8 for side in data.shape[1:]):
        raise gan.GanError(f"--resolution: {data.shape[1:]} are no multiples of 8; write 64 64")
    accelerator.print(f"{len(data)} pairs of {channels}x{data.shape[1]}x{data.shape[2]}")

    generator = UNet(channels, args.width)
    discriminator = PatchDiscriminator(channels, args.width)
    g_optimizer = torch.optim.Adam(generator.parameters(), args.lr, (0.5, 0.99))
    d_optimizer = torch.optim.Adam(discriminator.parameters(), args.lr, (0.5, 0.99))
    order = gan.EndlessBatches(len(data), args.batch_size, args.seed)
    generator, discriminator, g_optimizer, d_optimizer, loader = accelerator.prepare(
        generator, discriminator, g_optimizer, d_optimizer, gan.data_loader(data, order)
    )
    generator = gan.Player(accelerator, generator, g_optimizer, name="generator")
    discriminator = gan.Player(accelerator, discriminator, d_optimizer, name="discriminator")
    processes, rank = accelerator.num_processes, accelerator.process_index
    pairs = gan.Stream(loader, order, num_processes=processes, process_index=rank)

    rows = torch.linspace(0, len(held_out) - 1, min(16, len(held_out))).long()
    shown = held_out.__getitems__(rows)[0].to(accelerator.device) / 127.5 - 1
    source, target = shown.chunk(2, dim=1)
    loss = gan.LOSSES["non-saturating"]
    d_penalties = {"r1": (args.gamma / 2, gan.PENALTIES["r1"].term)}
    g_penalties = {"l1": (args.l1, l1)}

    for step in range(1, args.steps + 1):
        image, real = next(pairs)[0].chunk(2, dim=1)
        window = [gan.MicroBatch(real, inputs=(image,), condition=(image,))]
        d = gan.discriminator_step(
            accelerator, generator, discriminator, window, loss, penalties=d_penalties
        )
        g = gan.generator_step(
            accelerator, generator, discriminator, window, loss, penalties=g_penalties
        )
        if step % args.show_every == 0 or step == args.steps:
            with torch.no_grad():
                made = generator.raw(source)
            accelerator.print(
                f"step {step:5d}: discriminator {d['loss/discriminator']:.3f}, generator "
                f"{g['loss/generator']:.3f}, L1 {g['penalty/l1']:.4f}, "
                f"of pairs not trained on {(made - target).abs().mean():.4f}"
            )
            if accelerator.is_main_process:  # input, made, target, and so on along the row
                tiles = torch.stack([source, made, target], dim=1).flatten(0, 1).cpu()
                save_picture(args.out / f"step-{step:06d}.png", picture(tiles, columns=12))


def main(arguments=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", help="folder, zip or tar of pairs; none: makes its own")
    parser.add_argument("--pairs", choices=["folders", "side-by-side"], default="folders")
    parser.add_argument("--resolution", type=int, nargs=2, metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--channels", type=int, choices=[1, 3, 4])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch_size", type=int, default=16, help="of each process")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--l1", type=float, default=20.0, help="weight of the L1 term")
    parser.add_argument("--gamma", type=float, default=0.1, help="weight of R1, times two")
    parser.add_argument("--width", type=int, default=32, help="channels of the first layers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show_every", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("image-to-image"), help="for pictures")
    args = parser.parse_args(arguments)
    args.resolution = tuple(args.resolution) if args.resolution else None
    try:
        train(args)
    except gan.GanError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()

"""Draw a folder of transparent colour icons, to see what is chosen for it and what is learned.

python examples/results/icons.py icons
gan train --data icons --steps 900
"""

import argparse
import colorsys
import math
import random
from pathlib import Path

from PIL import Image, ImageDraw

SIZE, FINER = 64, 4
SHAPES = {"triangle": 3, "square": 4, "hexagon": 6, "star": 10, "disc": 60, "ring": 60}


def icon(chance):
    """One shape, turned and coloured at random, with a smooth border."""
    name, colour = chance.choice(list(SHAPES)), colorsys.hsv_to_rgb(chance.random(), 0.8, 0.9)
    full, radius, turn = SIZE * FINER, chance.uniform(0.28, 0.46), chance.uniform(0, 2 * math.pi)
    image = Image.new("RGBA", (full, full), (255, 255, 255, 0))
    draw, corners = ImageDraw.Draw(image), []
    for i in range(SHAPES[name]):
        far = radius * (0.45 if name == "star" and i % 2 else 1)
        angle = turn + 2 * math.pi * i / SHAPES[name]
        corners.append(tuple(full * (0.5 + far * f(angle)) for f in (math.cos, math.sin)))
    draw.polygon(corners, fill=tuple(round(255 * part) for part in colour))
    if name == "ring":
        edge = full * (0.5 - radius / 2), full * (0.5 + radius / 2)
        draw.ellipse([edge[0], edge[0], edge[1], edge[1]], fill=(255, 255, 255, 0))
    return image.resize((SIZE, SIZE), Image.Resampling.BOX)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=300)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True)
    chance = random.Random(0)
    for number in range(arguments.count):
        icon(chance).save(arguments.folder / f"{number:03d}.png")


if __name__ == "__main__":
    main()

"""Seeds to images, images to pictures."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from torch import Tensor, nn

from gan.errors import GanError
from gan.sampling import (
    POINTS_EXTENT,
    generate,
    grid_columns,
    labels_for,
    latents,
    picture,
    sample,
    sample_batches,
    save_picture,
    to_bytes,
)


class Tiny(nn.Module):
    """Linear, batch norm, transposed convolution: what rounds, and what has a mode."""

    def __init__(self, num_classes: int = 0, channels: int = 1, noisy: bool = False) -> None:
        super().__init__()
        self.z_dim, self.num_classes, self.shape = 12, num_classes, (channels, 8, 8)
        self.noisy = noisy
        self.linear = nn.Linear(self.z_dim + num_classes, 4 * 16)
        self.norm = nn.BatchNorm1d(4 * 16)
        self.up = nn.Sequential(nn.ConvTranspose2d(4, channels, 4, 2, 1), nn.Tanh())

    def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
        if labels is not None:
            z = torch.cat([z, nn.functional.one_hot(labels, self.num_classes).to(z)], 1)
        x = self.norm(self.linear(z))
        if self.noisy:
            x = x + torch.randn_like(x)
        return self.up(x.view(-1, 4, 4, 4))


@pytest.fixture
def generator() -> Tiny:
    return Tiny()


# --- latents and labels --------------------------------------------------------------------------


def test_a_latent_depends_on_its_seed_alone() -> None:
    many = latents(range(100), 7)
    assert many.shape == (100, 7)
    assert torch.equal(latents([42], 7)[0], many[42])
    assert torch.equal(latents(np.array([42, 3]), 7), many[[42, 3]])
    assert len({tuple(row.tolist()) for row in many}) == 100


def test_latents_are_standard_normal() -> None:
    z = latents(range(2000), 50)
    assert abs(z.mean()) < 0.02
    assert abs(z.std() - 1) < 0.02


def test_no_seeds_no_latents() -> None:
    assert latents([], 5).shape == (0, 5)


def test_truncation_bounds_and_keeps_the_order() -> None:
    z, cut = latents(range(200), 20), latents(range(200), 20, truncation=0.5)
    assert cut.abs().max() <= 0.5
    assert torch.equal(z.flatten().argsort(), cut.flatten().argsort())
    # The variance of a normal distribution cut at t: 1 - 2 t pdf(t) / (2 cdf(t) - 1).
    density = math.exp(-0.125) / math.sqrt(2 * math.pi)
    expected = 1 - 2 * 0.5 * density / math.erf(0.5 / math.sqrt(2))
    assert cut.var().item() == pytest.approx(expected, rel=0.05)


def test_a_wide_truncation_changes_nothing() -> None:
    torch.testing.assert_close(latents(range(9), 9, truncation=30.0), latents(range(9), 9))


def test_truncation_must_be_above_zero() -> None:
    with pytest.raises(GanError, match=r"^truncation: 0 is not above 0; 1 is strong, 2 weak$"):
        latents([0], 3, truncation=0)


def test_each_seed_has_a_class() -> None:
    assert labels_for([0, 1, 9, 10, 25], 10).tolist() == [0, 1, 9, 0, 5]


@pytest.mark.parametrize(
    ("n", "num_classes", "columns"),
    [(64, 0, 8), (1, 0, 1), (10, 0, 4), (64, 10, 10), (64, 3, 9), (100, 100, 10), (64, 16, 16)],
)
def test_columns_of_a_grid(n: int, num_classes: int, columns: int) -> None:
    assert grid_columns(n, num_classes) == columns


def test_each_column_shows_one_class() -> None:
    columns = grid_columns(60, 10)
    labels = labels_for(range(60), 10).view(-1, columns)
    assert (labels == labels[0]).all()


# --- one seed, one image -------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 3, 64, 100, 1000])
def test_an_image_is_the_same_at_every_batch_size(generator: Tiny, batch_size: int) -> None:
    generator.train()(torch.randn(32, 12))  # running statistics that are not 0 and 1
    expected = sample(generator, range(150))
    assert torch.equal(sample(generator, range(150), batch_size=batch_size), expected)


def test_an_image_is_the_same_beside_other_images(generator: Tiny) -> None:
    images = sample(generator, range(150))
    order = torch.randperm(150)
    assert torch.equal(sample(generator, order), images[order])
    assert torch.equal(sample(generator, [77]), images[77:78])
    assert not torch.equal(images[76], images[77])


def test_pieces_are_the_whole(generator: Tiny) -> None:
    pieces = list(sample_batches(generator, range(10), batch_size=4))
    assert [len(piece) for piece in pieces] == [4, 4, 2]
    assert torch.equal(torch.cat(pieces), sample(generator, range(10)))


def test_no_seeds_no_images(generator: Tiny) -> None:
    assert sample(generator, []).shape == (0, 1, 8, 8)


def test_large_images_come_in_smaller_batches() -> None:
    class Recorder(nn.Module):
        z_dim, num_classes = 2, 0

        def __init__(self, shape: tuple[int, ...]) -> None:
            super().__init__()
            self.weight, self.shape, self.sizes = nn.Parameter(torch.ones(())), shape, set()

        def forward(self, z: Tensor) -> Tensor:
            self.sizes.add(len(z))
            return self.weight * z[:, :1, None, None].expand(-1, *self.shape)

    for shape, size in {(1, 8, 8): 64, (3, 256, 256): 21, (3, 1024, 1024): 4}.items():
        recorder = Recorder(shape)
        generate(recorder, torch.zeros(5, 2))
        assert recorder.sizes == {size}


def test_the_batch_is_in_eval_mode_and_leaves_no_trace() -> None:
    generator = Tiny(noisy=True).train()
    generator.norm.eval()  # modes are the modules' own
    before = {name: value.clone() for name, value in generator.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    images = sample(generator, range(70))
    assert torch.equal(torch.rand(3), expected)
    assert not images.requires_grad
    assert torch.equal(images, sample(generator, range(70)))
    after = generator.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert generator.training
    assert generator.up.training
    assert not generator.norm.training


def test_everything_is_put_back_after_an_error(generator: Tiny) -> None:
    generator.train()
    with pytest.raises(RuntimeError):
        generate(generator, torch.zeros(3, 5))
    assert generator.training
    assert torch.is_grad_enabled()


def test_a_module_that_counts_in_eval_mode_is_put_back() -> None:
    class Counting(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, z: Tensor, labels: Tensor | None = None) -> Tensor:
            self.calls += 1
            return super().forward(z, labels)

    generator = Counting()
    sample(generator, range(3))
    assert generator.calls == 0


def test_a_prepared_generator_is_sampled_in_full_precision(generator: Tiny) -> None:
    expected = sample(generator, range(5))
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    prepared = accelerator.prepare(generator)
    assert torch.equal(sample(prepared, range(5)), expected)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(sample(generator, range(5)), expected)


def test_wrappers_are_taken_off(generator: Tiny) -> None:
    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self._orig_mod = module

    expected = sample(generator, range(5))
    assert torch.equal(sample(torch.compile(generator, backend="eager"), range(5)), expected)
    assert torch.equal(sample(Wrapper(Wrapper(generator)), range(5)), expected)


# --- classes -------------------------------------------------------------------------------------


def test_classes_follow_the_seeds_unless_given() -> None:
    generator = Tiny(num_classes=3)
    images = sample(generator, range(6))
    assert torch.equal(sample(generator, range(6), [0, 1, 2, 0, 1, 2]), images)
    assert torch.equal(sample(generator, range(6), 1)[[1, 4]], images[[1, 4]])
    assert not torch.equal(sample(generator, range(6), 1)[0], images[0])


@pytest.mark.parametrize(
    ("classes", "labels", "message"),
    [
        (0, [0, 0], "labels: this generator was trained without classes; leave them out"),
        (3, [0, 3], "labels: 3 is no class; this generator has 0 to 2"),
        (3, -1, "labels: -1 is no class; this generator has 0 to 2"),
        (3, [0], "labels: 1 of them for 2 seeds; give one for each"),
    ],
)
def test_labels_that_cannot_be(classes: int, labels: list[int], message: str) -> None:
    with pytest.raises(GanError) as caught:
        sample(Tiny(num_classes=classes), range(2), labels)
    assert str(caught.value) == message


# --- pictures ------------------------------------------------------------------------------------


def test_bytes_are_the_inverse_of_what_the_data_does() -> None:
    every = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_bytes(every / 127.5 - 1), every)


def test_bytes_are_clamped_and_rounded() -> None:
    values = torch.tensor(
        [-3.0, -1.0, 0.4 / 127.5 - 1, 0.6 / 127.5 - 1, 1.0, 7.0, math.nan, math.inf]
    )
    assert to_bytes(values).tolist() == [0, 0, 0, 1, 255, 255, 128, 255]


def test_a_grid_by_hand() -> None:
    samples = torch.tensor([-1.0, 1.0, 0.0]).view(3, 1, 1, 1).expand(3, 1, 32, 32)
    grid = picture(samples, columns=2)
    assert grid.dtype == torch.uint8
    assert grid.shape == (1, 2 * 64 + 3 * 2, 2 * 64 + 3 * 2)
    assert (grid[0, 2:66, 2:66] == 0).all()
    assert (grid[0, 68:132, 2:66] == 128).all()
    assert grid[0, 68:132, 68:132].min() == 255  # no fourth sample
    assert (grid[0, :2] == 255).all()
    assert (grid[0, :, 66:68] == 255).all()
    assert (grid[0, -2:] == 255).all()


def test_one_bright_pixel_changes_no_other() -> None:
    samples = torch.rand(4, 3, 64, 64) - 0.5
    bright = samples.clone()
    bright[0, :, 0, 0] = 5
    assert (picture(samples) != picture(bright)).any(0).nonzero().tolist() == [[2, 2]]


def test_an_outlier_in_an_enlarged_image_stays_near_its_pixel() -> None:
    samples = torch.zeros(4, 1, 8, 8)
    for outlier in (5.0, float("inf"), float("nan")):
        strange, white = samples.clone(), samples.clone()
        strange[0, 0, 0, 0], white[0, 0, 0, 0] = outlier, 0 if math.isnan(outlier) else 1
        assert torch.equal(picture(strange), picture(white))
    assert (picture(white)[:, 34:] == picture(samples)[:, 34:]).all()


def test_small_images_are_enlarged_smoothly() -> None:
    samples = torch.tensor([-1.0, 1.0]).repeat_interleave(4).expand(1, 1, 8, 8)
    row = picture(samples)[0, 34, 2:66].int()
    assert row[0] == 0
    assert row[-1] == 255
    assert (row.diff() >= -5).all()
    assert len(row.unique()) > 8


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_are_kept(channels: int) -> None:
    assert picture(torch.zeros(4, channels, 16, 16)).shape[0] == channels


@pytest.mark.parametrize(
    ("n", "size", "shape"),
    [
        (1, (8, 8), (68, 68)),
        (64, (8, 8), (530, 530)),
        (4, (28, 28), (118, 118)),
        (4, (64, 64), (134, 134)),
        (4, (8, 16), (134, 262)),
        (64, (1024, 1024), (2066, 2066)),
        (10_000, (32, 32), (2202, 2202)),
    ],
)
def test_sizes_of_pictures(n: int, size: tuple[int, int], shape: tuple[int, int]) -> None:
    samples = torch.zeros(1, 1, 1, 1).expand(n, 1, *size)
    assert picture(samples).shape[1:] == shape


def test_a_large_image_is_averaged_down() -> None:
    board = (torch.arange(4096).view(-1, 1) + torch.arange(4096)) % 2 * 2.0 - 1
    grid = picture(board.view(1, 1, 4096, 4096))
    assert (grid[:, 2:-2, 2:-2] == 128).all()


def test_points_are_plotted_where_they_are() -> None:
    where = torch.tensor([[POINTS_EXTENT / 2, POINTS_EXTENT / 2], [99.0, 0.0]])
    plot = picture(where).float().mean(0)
    assert plot.shape == (512, 512)
    assert plot[128, 384] < 200  # up and right
    assert plot[255, 511] < 255  # outside is on the edge
    assert plot[384, 128] == 255


def test_real_points_have_another_colour() -> None:
    real, fake = torch.tensor([[-0.9, 0.0]]), torch.tensor([[0.9, 0.0]])
    plot = picture(fake, real=real).int()
    red, _, blue = plot[:, 256, 128]
    assert red > blue
    red, _, blue = plot[:, 256, 384]
    assert blue > red


@pytest.mark.parametrize("shape", [(4, 2, 8, 8), (4, 3), (4, 3, 8)])
def test_what_is_neither_images_nor_points(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="are neither images nor points"):
        picture(torch.zeros(shape))


def test_nothing_to_show() -> None:
    with pytest.raises(ValueError, match="there are no samples to make a picture of"):
        picture(torch.zeros(0, 1, 8, 8))


@pytest.mark.parametrize(("channels", "mode"), [(1, "L"), (3, "RGB"), (4, "RGBA")])
def test_a_saved_picture_reads_back(tmp_path: Path, channels: int, mode: str) -> None:
    pixels = torch.randint(0, 256, (channels, 5, 7), dtype=torch.uint8)
    path = tmp_path / "new" / "grid.png"
    save_picture(path, pixels)
    with Image.open(path) as image:
        assert image.mode == mode
        read = torch.from_numpy(np.array(image)).view(5, 7, channels).permute(2, 0, 1)
    assert torch.equal(read, pixels)
    assert list(path.parent.iterdir()) == [path]


def test_a_picture_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "grid.png"
    with pytest.raises(GanError) as caught:
        save_picture(path, torch.zeros(1, 4, 4, dtype=torch.uint8))
    assert str(caught.value) == f"cannot write {path}: File exists"


@pytest.mark.parametrize(("name", "ending"), [("grid.xyz", ".xyz"), ("grid", "no ending")])
def test_an_ending_that_is_no_picture(tmp_path: Path, name: str, ending: str) -> None:
    with pytest.raises(GanError) as caught:
        save_picture(tmp_path / name, torch.zeros(1, 4, 4, dtype=torch.uint8))
    assert str(caught.value) == f"{tmp_path / name}: {ending} is no kind of picture; use .png"
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "grid.png"
    save_picture(path, torch.zeros(1, 4, 4, dtype=torch.uint8))
    before = path.read_bytes()

    def full(self: Image.Image, target: Path) -> None:
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Image.Image, "save", full)
    with pytest.raises(GanError, match="No space left on device"):
        save_picture(path, torch.ones(1, 4, 4, dtype=torch.uint8))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


class Styled(nn.Module):
    """A generator with a truncation of its own, which it shows instead of an image."""

    z_dim, num_classes, shape = 3, 0, (1, 2, 2)

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, z: Tensor, labels: Tensor | None = None, *, truncation: float = 1) -> Tensor:
        shown = torch.stack([z.abs().amax(1), torch.full((len(z),), truncation)], 1)
        return shown.repeat(1, 2).view(-1, 1, 2, 2)


def test_a_generator_with_a_truncation_of_its_own_gets_it_and_the_whole_latent() -> None:
    seeds = range(50)
    images = sample(Styled(), seeds, truncation=0.25)
    assert torch.equal(images[:, 0, 0, 0], latents(seeds, 3).abs().amax(1))
    assert images[:, 0, 0, 1].unique().tolist() == [0.25]
    assert sample(Styled(), [0], truncation=0)[0, 0, 0, 1] == 0
    assert sample(Styled(), [0])[0, 0, 0, 1] == 1
    with pytest.raises(GanError, match=r"^truncation: -1 is below 0; 0\.5 is strong, 1 is off$"):
        sample(Styled(), [0], truncation=-1)


def test_what_is_no_generator_is_named_at_once() -> None:
    for wrong, kind in (
        ("runs/digits-001", "str"),
        (nn.Linear(2, 2), "Linear"),
        (None, "NoneType"),
    ):
        with pytest.raises(TypeError) as caught:
            sample(wrong, range(3))  # type: ignore[arg-type]
        expected = f"generator: a {kind} is none; gan.load_generator(FOLDER) gives one"
        assert str(caught.value) == expected


def test_a_mistake_is_found_before_the_first_piece_is_drawn() -> None:
    network = Tiny()
    for labels, truncation in ((3, None), (None, 0.0), (None, float("nan"))):
        with pytest.raises(GanError):
            sample_batches(network, range(3), labels, truncation=truncation)

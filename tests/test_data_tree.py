"""Folders and archives: splits, classes, label files, pairs, and what is refused."""

from __future__ import annotations

import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gan.data import ImageData, open_data
from gan.data.archive import members_of
from gan.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("GAN_CACHE", str(tmp_path_factory.mktemp("cache")))


def picture(path: Path, value: int = 7, size: tuple[int, int] = (8, 8)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, value).save(path)
    return path


def values(data: ImageData) -> list[int]:
    return data.images[:, 0, 0, 0].tolist()


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Two classes of two, a hidden file, and a text."""
    folder = tmp_path / "pets"
    for index, name in enumerate(["cat/a.png", "cat/b.png", "dog/a.png", "dog/b.png"]):
        picture(folder / name, index)
    (folder / ".DS_Store").write_bytes(b"junk")
    (folder / "notes.txt").write_text("hello")
    return folder


def zipped(folder: Path, target: Path, method: int = zipfile.ZIP_DEFLATED, top: str = "") -> Path:
    with zipfile.ZipFile(target, "w", method) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, f"{top}{path.relative_to(folder)}")
    return target


def tarred(folder: Path, target: Path) -> Path:
    packing = target.suffix[1:] if target.suffix != ".tar" else ""
    with tarfile.open(target, f"w:{packing}") as archive:  # type: ignore[call-overload]
        archive.add(folder, ".")
    return target


ARCHIVES: dict[str, Callable[[Path, Path], Path]] = {
    "stored.zip": lambda folder, at: zipped(folder, at / "a.zip", zipfile.ZIP_STORED),
    "deflated.zip": lambda folder, at: zipped(folder, at / "a.zip"),
    "bzip2.zip": lambda folder, at: zipped(folder, at / "a.zip", zipfile.ZIP_BZIP2),
    "in a folder.zip": lambda folder, at: zipped(folder, at / "a.zip", top="my/pets/"),
    "plain.tar": lambda folder, at: tarred(folder, at / "a.tar"),
    "tar.gz": lambda folder, at: tarred(folder, at / "a.tar.gz"),
    "tar.xz": lambda folder, at: tarred(folder, at / "a.tar.xz"),
    "tar.bz2": lambda folder, at: tarred(folder, at / "a.tar.bz2"),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_is_the_same_as_its_folder(kind: str, classes: Path, tmp_path: Path) -> None:
    archive = ARCHIVES[kind](classes, tmp_path)
    data = open_data(str(archive))
    order = np.argsort(values(data))  # a tar is read in its own order
    assert [values(data)[index] for index in order] == [0, 1, 2, 3]
    assert [data.labels.tolist()[index] for index in order] == [0, 0, 1, 1]
    assert data.class_names == ("cat", "dog")
    assert data.notes[0].startswith("1 other files ignored")
    assert sorted(os.listdir(tmp_path)) == sorted([archive.name, "pets"])


def test_a_large_packed_tar_is_sent_in_parts(
    classes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(150):
        picture(classes / "cat" / f"{index:03}.png", index)
    monkeypatch.setattr("gan.data.pool._ALONE_SECONDS", 0)
    monkeypatch.setattr("gan.data.pool.cores", lambda: 2)
    data = open_data(str(tarred(classes, tmp_path / "a.tar.gz")))
    assert sorted(values(data)) == sorted([*range(150), 0, 1, 2, 3])


@pytest.mark.parametrize(
    "name", ["../out.png", "/etc/out.png", "a/../../out.png", "C:\\out.png", "..\\out.png"]
)
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_a_member_that_points_outside_refuses_the_archive(
    name: str, kind: str, tmp_path: Path
) -> None:
    content = picture(tmp_path / "a.png").read_bytes()
    path = tmp_path / f"bad.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("good.png", content)
            archive.writestr(name, content)
    else:
        with tarfile.open(path, "w") as archive:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, BytesIO(content))
    with pytest.raises(DataError, match=r"is refused: its member .* points outside of it"):
        open_data(str(path))


@pytest.mark.parametrize("target", ["/etc/passwd", "../../x.png"])
def test_a_link_out_of_a_tar_refuses_it(target: str, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "bad.tar", "w") as archive:
        member = tarfile.TarInfo("x/a.png")
        member.type, member.linkname = tarfile.SYMTYPE, target
        archive.addfile(member)
    with pytest.raises(DataError, match=rf"'x/a\.png', a link to '{target}', points outside"):
        open_data(str(tmp_path / "bad.tar"))


def test_members_of_a_tar_that_are_no_plain_files(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for index, name in enumerate(["x/a.png", "x/b.png", "x/a.png"]):
            archive.add(picture(tmp_path / "p.png", index), f"./{name}")
        hard, link, pipe = tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE
        kinds = [("c.png", "./x/b.png", hard), ("d.png", "x/e.png", hard)]
        kinds += [("f.png", "x/a.png", link), ("g.png", "", pipe)]
        for name, target, kind in kinds:
            member = tarfile.TarInfo(name)
            member.linkname, member.type = target, kind
            archive.addfile(member)
    assert members_of(tmp_path / "a.tar").ignored == [
        "x/a.png (a later one has its name)",
        *("d.png (a link)", "f.png (a link)", "g.png (no plain file)"),
    ]
    data = open_data(str(tmp_path / "a.tar"))
    assert values(data) == [2, 1, 1]  # c.png is x/b.png
    note = "4 other files ignored, such as x/a.png (a later one has its name)"
    assert data.notes[0] == note


def test_a_name_that_a_zip_has_twice_is_of_the_last(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for index, name in enumerate(["a.png", "b.png", "c.png"]):
            archive.write(picture(tmp_path / "p.png", index), name)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.write(picture(tmp_path / "p.png", 9), "a.png")
    data = open_data(str(tmp_path / "a.zip"))
    assert values(data) == [9, 1, 2]
    assert data.notes[0] == "1 other files ignored, such as a.png (a later one has its name)"


def test_damage_in_a_zip_is_found(classes: Path, tmp_path: Path) -> None:
    path = zipped(classes, tmp_path / "a.zip", zipfile.ZIP_STORED)
    with zipfile.ZipFile(path) as archive:
        offset = archive.getinfo("dog/a.png").header_offset
        size = archive.getinfo("dog/a.png").file_size
    data = bytearray(path.read_bytes())
    data[offset + 30 + len("dog/a.png") + size - 1] ^= 1  # of the last chunk's checksum
    path.write_bytes(data)
    with pytest.raises(
        DataError, match=r"dog/a\.png: damaged in the archive: its checksum differs"
    ):
        open_data(str(path))
    assert values(open_data(str(path), skip_unreadable=True)) == [0, 1, 3]


def test_a_changed_tar_is_prepared_again(tmp_path: Path) -> None:
    for value in 0, 255:
        Image.new("L", (8, 8), value).save(tmp_path / "a.bmp")
        content = (tmp_path / "a.bmp").read_bytes()
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            member = tarfile.TarInfo("a.bmp")  # both of the same size, and of the time 0
            member.size = len(content)
            archive.addfile(member, BytesIO(content))
        os.utime(tmp_path / "a.tar", ns=(10**18, 10**18 + value))
        assert values(open_data(str(tmp_path / "a.tar"))) == [value]


def test_labels_follow_when_an_image_is_left_out(classes: Path) -> None:
    (classes / "cat" / "a.png").write_bytes(b"")
    data = open_data(str(classes), skip_unreadable=True)
    assert (values(data), data.labels.tolist()) == ([1, 2, 3], [0, 1, 1])


def test_an_encrypted_member_says_so(classes: Path, tmp_path: Path) -> None:
    path = zipped(classes, tmp_path / "a.zip", zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        data[archive.getinfo("cat/a.png").header_offset + 6] |= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"cat/a\.png: encrypted"):
        open_data(str(path))


def test_a_member_that_claims_too_much_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.png", bytes(1000))
    data = bytearray(path.read_bytes())
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = (2 << 30).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.png: its 2,147,483,648 bytes are more than"):
        open_data(str(path))


def test_an_archive_cut_short(classes: Path, tmp_path: Path) -> None:
    path = tarred(classes, tmp_path / "a.tar.gz")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(
        DataError, match=r"the archive .*a\.tar\.gz cannot be read: .*[Cc]ompressed"
    ):
        open_data(str(path))


def test_a_zip_cut_short(classes: Path, tmp_path: Path) -> None:
    path = zipped(classes, tmp_path / "a.zip")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(DataError, match=r"a\.zip' is no whole archive\. Give a folder"):
        open_data(str(path))


def test_a_file_of_no_known_kind(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match=r"is a file of no known kind\. Give a folder, zip or tar"):
        open_data(str(tmp_path / "notes.txt"))


# --- links, pipes, permissions -------------------------------------------------------------------


def test_links_are_followed(classes: Path, tmp_path: Path) -> None:
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "kitten").symlink_to(classes / "cat")
    (tmp_path / "linked" / "one.png").symlink_to(classes / "dog" / "b.png")
    assert values(open_data(str(tmp_path / "linked"))) == [0, 1, 3]


def test_a_link_that_loops_is_refused(classes: Path) -> None:
    (classes / "cat" / "again").symlink_to(classes)
    with pytest.raises(DataError, match=r"pets/cat/again is a link that leads back to a folder"):
        open_data(str(classes))


def test_links_to_nowhere_and_to_themselves_are_unreadable(classes: Path) -> None:
    (classes / "cat" / "lost.png").symlink_to("nowhere.png")
    (classes / "cat" / "self.png").symlink_to("self.png")
    with pytest.raises(DataError) as caught:
        open_data(str(classes))
    assert "cat/lost.png: No such file or directory" in str(caught.value)
    assert "cat/self.png: Too many levels of symbolic links" in str(caught.value)


def test_a_pipe_does_not_hang(classes: Path) -> None:
    os.mkfifo(classes / "cat" / "pipe.png")
    with pytest.raises(DataError, match=r"cat/pipe\.png: not a regular file"):
        open_data(str(classes))


def test_without_permission(classes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def guarded(path: str) -> object:
        if str(path).endswith("dog"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)  # the tests may run as a user who may do anything
    with pytest.raises(DataError, match=r"the folder .*dog cannot be read: Permission denied"):
        open_data(str(classes))


def test_nothing_is_written_into_the_folder(classes: Path) -> None:
    def state() -> list[tuple[str, int, int]]:
        found = [classes, *classes.rglob("*")]
        return [(str(p), p.stat().st_mtime_ns, p.stat().st_size) for p in sorted(found)]

    before = state()
    open_data(str(classes), resolution=(4, 4))
    open_data(str(classes), resolution=(4, 4), no_cache=True)
    assert state() == before


# --- splits ------------------------------------------------------------------------------------


def test_train_and_test_folders_are_splits(classes: Path, tmp_path: Path) -> None:
    picture(tmp_path / "all" / "val" / "cat" / "z.png", 99)
    classes.rename(tmp_path / "all" / "train")
    data = open_data(str(tmp_path / "all"))
    assert (values(data), data.class_names) == ([0, 1, 2, 3], ("cat", "dog"))
    assert "the train split is the 4 images in train/" in data.notes
    assert values(open_data(str(tmp_path / "all"), split="test")) == [99]


def test_a_class_without_test_images_keeps_its_number(classes: Path, tmp_path: Path) -> None:
    picture(tmp_path / "all" / "test" / "pets" / "dog" / "z.png", 99)
    (tmp_path / "all" / "train").mkdir()
    classes.rename(tmp_path / "all" / "train" / "pets")
    test = open_data(str(tmp_path / "all"), split="test")
    assert test.class_names == open_data(str(tmp_path / "all")).class_names == ("cat", "dog")
    assert test.labels.tolist() == [1]


def test_a_folder_without_splits_has_no_test(classes: Path) -> None:
    with pytest.raises(DataError, match="has no test split, which is a folder named test"):
        open_data(str(classes), split="test")


# --- label files -------------------------------------------------------------------------------


def test_styleganss_zip_with_its_labels(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    labels = []
    for index, label in enumerate([3, 0, 10]):
        picture(folder / "00000" / f"img{index:08}.png", index)
        labels.append([f"00000/img{index:08}.png", label])
    (folder / "dataset.json").write_text(json.dumps({"labels": labels}))
    for path in (folder, zipped(folder, tmp_path / "a.zip", zipfile.ZIP_STORED)):
        data = open_data(str(path))
        assert data.labels.tolist() == [1, 0, 2]
        assert data.class_names == ("0", "3", "10")
        assert data.notes == ()
        assert open_data(str(path), labels="none").num_classes == 0


def test_styleganss_folders_without_labels_are_no_classes(tmp_path: Path) -> None:
    for index in range(2):
        picture(tmp_path / f"0000{index}" / "a.png")
    (tmp_path / "dataset.json").write_text('{"labels": null}')
    assert open_data(str(tmp_path)).num_classes == 0


@pytest.mark.parametrize(
    "text",
    [
        "file,label\ncat/a.png,wild\ncat/b.png,tame\ndog/a.png,wild\ndog/b.png,tame\n",
        "cat/a.png,wild\ncat/b.png,tame\ndog/a.png,wild\ndog/b.png,tame\n",
        "id;age;class\ncat/a;1;wild\ncat/b;2;tame\ndog/a;3;wild\ndog/b;4;tame\n",
        "label\tfilename\nwild\t./cat/a.png\ntame\tcat/b.png\nwild\tdog\\a.png\ntame\tdog/b.png\n",
        "cat/a.png,wild\ncat/a.png,wild\ncat/b.png,tame\ndog/a.png,wild\ndog/b.png,tame\n",
        "pet,class\ncat/a,wild\ncat/b,tame\ndog/a,wild\ndog/b,tame\n",
        "\ufefffile,label\r\ncat/a.png, wild\r\ncat/b.png,tame\r\ndog/a.png,wild\r\n"
        "dog/b.png,tame\r\n\r\n",
    ],
)
def test_labels_from_a_table(text: str, classes: Path, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    table.write_text(text, encoding="utf-8", newline="")
    data = open_data(str(classes), labels=str(table))
    assert data.class_names == ("tame", "wild")
    assert data.labels.tolist() == [1, 0, 1, 0]


def labelled(classes: Path, name: str, text: str) -> str:
    path = classes.parent / name
    path.write_text(text)
    with pytest.raises(DataError) as caught:
        open_data(str(classes), labels=str(path))
    return str(caught.value).replace(str(path), name)


def test_label_tables_that_do_not_fit(classes: Path) -> None:
    assert labelled(classes, "l.csv", "cat/a.png,x\ncat/b.png,x\ndog/a.png,y\n") == (
        "labels: l.csv says nothing of 1 of 4 images, such as dog/b.png. "
        "Add them to it, remove them, or use labels none."
    )
    rows = "cat/a.png,x\ncat/b.png,x\ndog/a.png,y\ndog/b.png,y\ndog/c.png,y\n"
    assert labelled(classes, "l.csv", rows) == (
        "labels: l.csv names 1 files that are not there, such as dog/c.png. "
        "Put them back, or remove them from it."
    )
    assert "needs a column of files and one of labels" in labelled(classes, "l.csv", "a.png\n")
    assert "is not of the form" in labelled(classes, "l.json", "{}")
    assert "is not of the form" in labelled(classes, "l.json", "no json")
    vector = '{"labels": [["cat/a.png", [0.1, 0.2]]]}'
    assert "the label of cat/a.png is [0.1, 0.2]; only whole" in labelled(classes, "l.json", vector)
    assert "holds no labels" in labelled(classes, "l.json", '{"labels": null}')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cat/a.png,x\ncat/a.png,y\n", "l.csv gives cat/a.png two classes, x and y. Keep one."),
        (
            "file,label\n\ncat/a.png,x\ncat/b.png,\n",
            "l.csv, line 4: 'cat/b.png,' lacks a file or a label. Every row needs both; complete "
            "or remove it.",
        ),
        ("file;label\ncat/a.png;x\ncat/b.png\n", "l.csv, line 3: 'cat/b.png' lacks a file or"),
        (
            "file,age,breed\ncat/a.png,3,x\n",
            "l.csv has the columns file, age, breed. It needs one of files, named file or filename "
            "or file_name or image or path or name or id, and one of labels, named label or class "
            "or category or target. Name them so.",
        ),
        ("pet,breed\ncat/a.png,x\n", "l.csv has the columns pet, breed. It needs one of files"),
        (
            "cat/a.png,-1\ncat/b.png,0.0\n",
            "l.csv has 1 labels below 0, such as -1. Number the classes from 0 on, or use labels",
        ),
        ("", "l.csv needs a column of files and one of labels in every row."),
        ("file\nb.png\n", "l.csv needs a column of files and one of labels in every row."),
    ],
)
def test_rows_of_a_table_that_say_too_much_or_too_little(
    text: str, reason: str, classes: Path
) -> None:
    assert reason in labelled(classes, "l.csv", text)


@pytest.mark.parametrize(("labels", "names"), [
    (("0.0", "1", "1.0", "10"), ("0", "1", "10")), (("1.0", "1.5", "2", "2"), ("1.0", "1.5", "2")),
    (("-", "a", "-1", "a"), ("-", "-1", "a")),
])  # fmt: skip
def test_numbers_in_a_table(
    labels: tuple[str, ...], names: tuple[str, ...], classes: Path, tmp_path: Path
) -> None:
    files = ("cat/a.png", "cat/b.png", "dog/a.png", "dog/b.png")
    rows = (f"{file},{label}\n" for file, label in zip(files, labels, strict=True))
    (tmp_path / "l.csv").write_text("".join(rows))
    found = open_data(str(classes), labels=str(tmp_path / "l.csv")).class_names
    assert sorted(found) == sorted(names)


def test_blank_lines_in_a_table(classes: Path, tmp_path: Path) -> None:
    rows = "\n \nfile,label\n\ncat/a.png,x\ncat/b.png,y\n  ,\ndog/a.png,x\ndog/b.png,x\n\n"
    (tmp_path / "l.csv").write_text(rows)
    data = open_data(str(classes), labels=str(tmp_path / "l.csv"))
    assert data.labels.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("label", ["-1", "0.5", "null", "true", "[0, 1]"])
def test_labels_in_json_that_are_no_classes(label: str, classes: Path) -> None:
    text = f'{{"labels": [["cat/a.png", {label}]]}}'
    assert "only whole numbers from 0 on, one a file" in labelled(classes, "l.json", text)


def test_a_table_in_another_encoding(classes: Path, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_bytes("cat/a.png,café\n".encode("latin-1"))
    with pytest.raises(DataError) as caught:
        open_data(str(classes), labels=str(tmp_path / "l.csv"))
    assert str(caught.value) == (
        f"labels: {tmp_path / 'l.csv'} is no text in UTF-8 (at byte 13). Save it as UTF-8, or use "
        f"labels none."
    )


def test_a_dataset_json_that_cannot_be_read(classes: Path) -> None:
    (classes / "dataset.json").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"labels: dataset\.json in the folder .*pets is no text"):
        open_data(str(classes))
    (classes / "dataset.json").unlink()
    (classes / "dataset.json").symlink_to("dataset.json")
    with pytest.raises(DataError, match=r"dataset\.json in the folder .* cannot be read: .*links"):
        open_data(str(classes))
    assert open_data(str(classes), labels="none").num_classes == 0


def test_a_table_may_cover_all_splits(classes: Path, tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    picture(tmp_path / "all" / "test" / "z.png", 9)
    classes.rename(tmp_path / "all" / "train")
    names = ["train/cat/a.png", "train/cat/b.png", "train/dog/a.png", "train/dog/b.png"]
    rows = [f"{name},{index % 2}" for index, name in enumerate([*names, "test/z.png"])]
    table = tmp_path / "labels.csv"
    table.write_text("\n".join(rows))
    assert open_data(str(tmp_path / "all"), labels=str(table)).labels.tolist() == [0, 1, 0, 1]
    assert open_data(str(tmp_path / "all"), labels=str(table), split="test").class_names == (
        "0",
        "1",
    )


def test_a_label_file_that_does_not_exist(classes: Path) -> None:
    with pytest.raises(DataError) as caught:
        open_data(str(classes), labels="lables.csv")
    assert str(caught.value) == (
        "labels: 'lables.csv' is not one of auto, none, folders, nor a file that exists."
    )


def test_a_single_class_counts_where_it_is_asked_for(tmp_path: Path) -> None:
    picture(tmp_path / "cat" / "a.png")
    assert open_data(str(tmp_path)).num_classes == 0
    assert open_data(str(tmp_path), labels="folders").class_names == ("cat",)


# --- pairs -------------------------------------------------------------------------------------


def test_pairs_from_two_folders(tmp_path: Path) -> None:
    for index in range(3):
        picture(tmp_path / "A" / f"{index}.png", index)
        picture(tmp_path / "B" / f"{index}.jpg", 100 + index)
    data = open_data(str(tmp_path), pairs="folders")
    assert data.shape == (2, 8, 8)
    assert data.images[:, :, 4, 4].tolist() == [[0, 100], [1, 101], [2, 102]]
    assert open_data(str(tmp_path), pairs="folders", channels=3).shape == (6, 8, 8)


def test_pairs_side_by_side(tmp_path: Path) -> None:
    both = np.concatenate([np.full((8, 8), 10), np.full((8, 8), 200)], axis=1).astype(np.uint8)
    (tmp_path / "train").mkdir()
    Image.fromarray(both).save(tmp_path / "train" / "a.png")
    data = open_data(str(tmp_path), pairs="side-by-side")
    assert data.shape == (2, 8, 8)
    assert (data.images[0, 0] == 10).all()
    assert (data.images[0, 1] == 200).all()
    picture(tmp_path / "train" / "b.png", size=(9, 4))
    with pytest.raises(DataError, match=r"b\.png: its width, 9, has no two equal halves"):
        open_data(str(tmp_path), pairs="side-by-side")


def test_pairs_of_two_kinds_are_not_mistaken_for_each_other(tmp_path: Path) -> None:
    picture(tmp_path / "A" / "x.png", 1)
    picture(tmp_path / "B" / "x.png", 2)
    rows = open_data(str(tmp_path), pairs="folders", resolution=(4, 4), channels=1)
    halves = open_data(str(tmp_path), pairs="side-by-side", resolution=(4, 4), channels=1)
    assert rows.images[:, :, 0, 0].tolist() == [[1, 2]]
    assert halves.images[:, :, 0, 0].tolist() == [[1, 1], [2, 2]]
    assert rows.fingerprint != halves.fingerprint


def test_pairs_that_do_not_match(tmp_path: Path) -> None:
    picture(tmp_path / "A" / "x.png")
    picture(tmp_path / "B" / "x.png", size=(8, 16))
    with pytest.raises(
        DataError, match=r"A/x\.png \+ B/x\.png: 8x8 and 8x16 pixels are not of the"
    ):
        open_data(str(tmp_path), pairs="folders")
    picture(tmp_path / "B" / "y.png")
    with pytest.raises(
        DataError, match=r"has 1 images in A or B without one of the same name .* y"
    ):
        open_data(str(tmp_path), pairs="folders")


def test_pairs_that_nobody_asked_for(tmp_path: Path) -> None:
    picture(tmp_path / "A" / "x.png", 1)
    picture(tmp_path / "B" / "x.jpg", 2)
    with pytest.raises(DataError) as caught:
        open_data(str(tmp_path))
    assert str(caught.value) == (
        f"data: the folder {tmp_path} holds pairs: every image in A has one of the same name in B. "
        "To learn to turn A into B, use examples/image_to_image.py (here: pairs folders); "
        "to learn to draw them all, use labels none, or labels folders for two classes."
    )
    assert open_data(str(tmp_path), labels="none").num_classes == 0
    assert open_data(str(tmp_path), labels="folders").class_names == ("A", "B")
    picture(tmp_path / "A" / "y.png", 3)
    assert open_data(str(tmp_path)).class_names == ("A", "B")  # then they are two classes


def test_pairs_without_their_folders(classes: Path) -> None:
    with pytest.raises(DataError, match=r"matches the images of two folders, A and B, by name"):
        open_data(str(classes), pairs="folders")

"""A zip or tar of images, StyleGAN's own zips among them."""

from __future__ import annotations

from pathlib import Path

from gan.data.archive import members_of
from gan.data.sources import Identity
from gan.data.tree import Tree, is_image, is_junk


def archive_tree(path: Path) -> Tree:
    """Find the images in an archive.

    Args:
        path: the zip or tar.

    Raises:
        DataError: if it is damaged, or a member points outside of it.
    """
    members = members_of(path)
    names = members.items.names
    images, others = [], list(members.ignored)
    for index, name in enumerate(names):
        if any(is_junk(part) for part in name.split("/")):
            continue
        if is_image(name):
            images.append(index)
        else:
            others.append(name)

    def read(other: str) -> bytes:
        return members.items.read(list(names).index(other))

    items = members.items.take(images)
    identity = Identity()
    status = path.stat()  # a tar says nothing of what its members hold, and keeps whole seconds
    identity.add(status.st_size, status.st_mtime_ns)
    for index in images:
        identity.add(*members.identity[index])
    return Tree(path.name, f"the archive {path}", items, items.names, identity, others, read)

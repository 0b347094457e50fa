"""Folders to and from the Hugging Face hub, with errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gan.errors import GanError


def is_hub_name(text: str) -> bool:
    """Whether a text has the form of a name on the hub: owner/name.

    Args:
        text: the text.

    Returns:
        True if so.
    """
    return re.fullmatch(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", text) is not None


def push(folder: Path, name: str, files: Sequence[str], *, private: bool = True) -> str:
    """Upload a folder as a model; the repository is made if missing.

    Args:
        folder: whose files.
        name: owner/name.
        files: which files, as patterns such as "*.png".
        private: whether a new repository is visible to its owner only.

    Returns:
        Address of the model's page.

    Raises:
        GanError: no such folder, no token, no network, or the hub refuses.
    """
    if not is_hub_name(name):
        raise GanError(f"{name!r} is no name on the hub; write owner/name")
    if not folder.is_dir():
        raise GanError(f"{folder} is no folder")
    from huggingface_hub import HfApi, get_token

    if get_token() is None:
        raise GanError(
            "the hub needs a token that may write: hf auth login, or set the environment variable "
            "HF_TOKEN"
        )
    api = HfApi()
    with _explained(name):
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=list(files))
    return str(address)


def pull(name: str, files: Sequence[str], revision: str | None = None) -> Path:
    """Download a model's files, or find them among those downloaded earlier.

    Args:
        name: owner/name.
        files: which files, as patterns.
        revision: branch, tag or commit; None: the main branch.

    Returns:
        The folder with the files; it belongs to the hub's cache, so change nothing there.

    Raises:
        GanError: no such model, no access, or no network.
    """
    from huggingface_hub import snapshot_download

    with _explained(name):
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))


@contextmanager
def _explained(name: str) -> Iterator[None]:
    from huggingface_hub import errors

    log_in = "log in with: hf auth login, or set the environment variable HF_TOKEN"
    try:
        yield
    except errors.GatedRepoError:
        raise GanError(f"{name}: ask for access on its page on the hub, then {log_in}") from None
    except errors.RepositoryNotFoundError:
        raise GanError(f"{name}: the hub has no such model, or hides it; {log_in}") from None
    except errors.RevisionNotFoundError:
        raise GanError(f"{name}: the hub has no such revision of it") from None
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        if status in (401, 403):
            raise GanError(f"{name}: your token may not do that; {log_in}") from None
        raise GanError(f"{name}: the hub answers {status}: {_first_line(error)}") from None
    except Exception as error:
        # What a missing network raises depends on the version and on the library below it.
        raise GanError(f"{name}: cannot reach the hub: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__

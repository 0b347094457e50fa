"""What a wheel of the project holds."""

import configparser
import email
import re
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

import gan

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (path,) = folder.iterdir()
    return zipfile.ZipFile(path)


@pytest.fixture(scope="module")
def metadata(wheel) -> email.message.Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_the_wheel_holds_the_package_its_types_and_its_licence_only(wheel):
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "gan").rglob("*.py")}
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == modules | {"gan/py.typed"}
    (licence,) = (name for name in wheel.namelist() if name.endswith("/LICENSE"))
    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()


def test_there_is_one_version(metadata):
    assert metadata["Name"] == "gan-toolkit"
    assert metadata["Version"] == gan.__version__
    assert gan.__version__ not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_script_is_the_command_line(wheel):
    (name,) = (name for name in wheel.namelist() if name.endswith("/entry_points.txt"))
    scripts = configparser.ConfigParser()
    scripts.read_string(wheel.read(name).decode())
    module, _, function = scripts["console_scripts"]["gan"].partition(":")
    assert callable(getattr(import_module(module), function))


def test_no_dependency_has_an_upper_bound_that_a_newer_release_would_break(metadata):
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert needed
    assert [line for line in needed if not re.fullmatch(r"[\w-]+>=[\d.]+", line)] == []


def test_only_the_ignore_file_of_runs_is_kept():
    listed = subprocess.run(
        ["git", "ls-files", "--", "runs"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode != 0:
        pytest.skip("needs: git, and a clone rather than an archive")
    assert listed.stdout.split() == ["runs/.gitignore"]

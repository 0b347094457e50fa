"""The README says what is true: its commands, its code, its tree of files."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import gan
from gan import flags
from gan.cli import COMMANDS as VERBS
from gan.commands.console import leading
from gan.data_config import DataConfig
from gan.flags import parse

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.M | re.S)
COMMANDS = sorted(set(re.findall(rf"\bgan ((?:{'|'.join(VERBS)}) [^`\n]+)", README)))
PYTHON = [text for language, text in BLOCKS if language == "python"]


def test_there_are_exactly_two_set_up_commands():
    lines = [line for _, text in BLOCKS for line in text.splitlines() if "install" in line]
    assert lines == [
        "pip install -e . && gan train digits",
        "pip install -e '.[test]' && python -m pytest",
    ]


def test_continuous_integration_runs_the_test_command_of_the_readme():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (command,) = re.findall(r'^TEST_COMMAND="(.*)"$', script, flags=re.M)
    assert command in README.splitlines()


@pytest.mark.parametrize("code", PYTHON, ids=["one-line", "thirty-lines", "one-piece"])
def test_the_code_runs(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_the_tree_shows_every_file_of_the_package():
    (tree,) = (text for _, text in BLOCKS if text.startswith("gan/\n"))
    shown = re.findall(r"^  ([\w./]+)", tree, flags=re.M)
    skip = {"__pycache__", "py.typed"}
    there = {
        path.name + "/" * path.is_dir()
        for path in (ROOT / "gan").iterdir()
        if path.name not in skip
    }
    assert sorted(shown) == sorted(there)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_understood(command):
    verb, *words = shlex.split(command, comments=True)
    plain = leading(words)
    real = DataConfig()
    kind, default = {
        "train": (flags.Train, lambda: flags.Train(gan.preset_config(plain[0]))),
        "resume": (flags.Resume, lambda: flags.Resume(gan.Config())),
        "data": (flags.Data, lambda: flags.Data(real)),
        "bench": (flags.BenchData, lambda: flags.BenchData(real)),
        "evaluate": (flags.Evaluate, lambda: flags.Evaluate(real)),
    }.get(verb) or (getattr(flags, verb.title()), getattr(flags, verb.title()))
    parse(kind, [word for word in words if word != "--help"], "gan", default())


def test_every_command_is_shown():
    assert {command.split()[0] for command in COMMANDS} == set(VERBS)

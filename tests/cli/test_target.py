from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from autoplan.cli.target import InputError, load_target


@pytest.fixture(autouse=True)
def own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Directories that a test adds to the import path end with it."""
    monkeypatch.setattr(sys, "path", list(sys.path))


def write(directory: Path, text: str, name: str = "given.py") -> str:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_model_and_graph(tmp_path: Path) -> None:
    target = load_target(write(tmp_path, "def build():\n    return 1, 2\n") + ":build")
    assert (target.model, target.graph, target.loss) == (1, 2, None)


def test_model_graph_and_loss(tmp_path: Path) -> None:
    target = load_target(write(tmp_path, "def build():\n    return 1, 2, max\n") + ":build")
    assert target.loss is max


def test_a_dict_by_name(tmp_path: Path) -> None:
    text = "def build():\n    return {'model': 1, 'graphs': [2, 3], 'batch_size': 2}\n"
    target = load_target(write(tmp_path, text) + ":build")
    assert (target.model, target.graph, target.loss, target.batch_size) == (1, [2, 3], None, 2)
    text = text.replace("graphs", "graf")
    with pytest.raises(InputError, match=r"a dict of model, graf, batch_size; it must return"):
        load_target(write(tmp_path, text, "wrong.py") + ":build")


def test_neighbours_of_the_file_can_be_imported(tmp_path: Path) -> None:
    write(tmp_path, "SIZE = 7\n", "my_neighbour.py")
    path = write(tmp_path, "from my_neighbour import SIZE\ndef build():\n    return SIZE, 0\n")
    assert load_target(path + ":build").model == 7


def test_a_file_called_like_a_module_does_not_take_its_place(tmp_path: Path) -> None:
    import random

    path = write(tmp_path, "def build():\n    return 1, 2\n", "random.py")
    assert load_target(path + ":build").model == 1
    assert sys.modules["random"] is random
    code = f"import sys; sys.path[:] = {sys.path!r}; import random; random.Random"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def build():\n    return 1\n", "returned an object of type int; it must return"),
        ("def build():\n    return 1, 2, 3, 4\n", "returned a tuple of 4"),
        ("def build():\n    return 1, 2, 3\n", "the loss .* is an object of type int"),
        ("def construct():\n    return 1, 2\n", "no function 'build'; it has construct"),
        ("X = 1\n", "it has no functions"),
        ("import no_such_module_here\n", "cannot be imported:(.|\n)*ModuleNotFoundError"),
        ("def build(:\n", "cannot be imported:(.|\n)*SyntaxError"),
        ("def build():\n    raise SystemExit(0)\n", r"failed:(.|\n)*it called sys\.exit\(0\)"),
        ("import sys\nsys.exit(3)\n", r"cannot be imported:(.|\n)*it called sys\.exit\(3\)"),
        ("def build():\n    return 1 / 0\n", "failed:(.|\n)*given.py(.|\n)*ZeroDivisionError"),
    ],
)
def test_a_file_that_does_not_serve_is_explained(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load_target(write(tmp_path, text) + ":build")


@pytest.mark.parametrize(
    "text", ["model.py", "model:build", "model.py:", "model.py:a b", "m.txt:b"]
)
def test_what_names_no_function_is_explained(text: str) -> None:
    with pytest.raises(InputError, match=r"write FILE\.py:FUNCTION"):
        load_target(text)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(InputError, match=r"there is no file nowhere\.py"):
        load_target("nowhere.py:build")

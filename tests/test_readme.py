"""The README's Python is what a reader runs first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def blocks(repository: Path) -> list[str]:
    text = (repository / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def test_the_ten_lines_run(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _ = blocks(repository)
    assert "epochs=100" in code
    exec(compile(code.replace("epochs=100", "epochs=3"), "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "data on 2 devices (2xcpu): exact" in out
    assert "the plan equals one device" in out


def test_the_pipeline_runs(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    _, code = blocks(repository)
    # the classes of a real file have a module
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    out = capsys.readouterr().out
    assert "pipeline on 2 devices (2xcpu): exact" in out
    assert "4 micro-batches of whole graphs" in out
    assert "the plan equals one device" in out
    assert "it fits: " in out


def test_the_commands_are_in_the_makefile(repository: Path) -> None:
    readme = (repository / "README.md").read_text(encoding="utf-8")
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    for command in set(re.findall(r"^ +make ([a-z]+)", readme, flags=re.MULTILINE)):
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE), command

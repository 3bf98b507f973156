"""The README's Python is what a reader runs first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


def test_the_ten_lines_run(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (repository / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert "epochs=100" in code
    exec(compile(code.replace("epochs=100", "epochs=3"), "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert "data on 2 devices (2xcpu): exact" in out
    assert "the plan equals one device" in out


def test_the_commands_are_in_the_makefile(repository: Path) -> None:
    readme = (repository / "README.md").read_text(encoding="utf-8")
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    for command in set(re.findall(r"^ +make ([a-z]+)", readme, flags=re.MULTILINE)):
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE), command

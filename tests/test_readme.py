"""The README's code is what a reader runs first: every block runs as it is pasted, every command is one that there is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from autoplan.cli.main import app, main

SAYS = {
    "digits": ("data on 2 devices (2xcpu): exact", "the plan equals one device"),
    "Classifier": (": loss ", "accuracy "),
    "GIN": (
        "pipeline on 2 devices (2xcpu): exact",
        "4 micro-batches of whole graphs",
        "the plan equals one device",
        "it fits: ",
    ),
}
"""Of each Python block, by a name in it: what it prints."""


def blocks(repository: Path, language: str) -> list[str]:
    text = (repository / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


def commands(repository: Path) -> list[list[str]]:
    """Words of every `autoplan ...`: lines of shell blocks, and code in the text without placeholders' brackets."""
    text = (repository / "README.md").read_text(encoding="utf-8")
    lines = [line for block in blocks(repository, "bash") for line in block.splitlines()]
    written = [*re.findall(r"`(autoplan [^`]+)`", text), *lines]
    return [
        shlex.split(re.sub(r"[][]", "", line))[1:] for line in written if line[:9] == "autoplan "
    ]


def test_no_code_stands_outside_the_blocks_that_are_tested(repository: Path) -> None:
    text = (repository / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^```(\w+)$", text, flags=re.MULTILINE)) == {"python", "bash"}
    assert not re.search(
        r"^    (import|from|[\w.]+ = |plan\.|make |autoplan )",
        re.sub(r"^```python\n.*?^```", "", text, flags=re.DOTALL | re.MULTILINE),
        flags=re.MULTILINE,
    )
    assert len(blocks(repository, "python")) == len(SAYS)


@pytest.mark.parametrize("number", range(len(SAYS)))
def test_python_blocks_run(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks(repository, "python")[number]
    said = next(said for name, said in SAYS.items() if name in code)
    fewer = re.sub(r"epochs=\d+", "epochs=3", code)
    # the classes of a real file have a module
    exec(compile(fewer, "README.md", "exec"), {"__name__": "readme"})
    out = capsys.readouterr().out
    for words in said:
        assert words in out


def without_numbers(line: str) -> str:
    """A line as its words: numbers, their units, rules of tables and blanks aside."""
    words = re.sub(r"[-+]?\d[\d.,e-]*( (ms|µs|s|B|KiB|MiB|GiB|%|x)(?!\w))?", "#", line)
    return " ".join(re.sub("─+", "─", words).split())


def test_the_printed_plan_is_one_that_is_printed(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prices depend on the processor; all words are those that the program says."""
    text = (repository / "README.md").read_text(encoding="utf-8")
    shown = text[text.index("\n    Plan\n") : text.index("\n    loss ")]
    code = blocks(repository, "python")[0]
    exec(code[: code.index("result = ")], {"__name__": "readme"})
    said = {without_numbers(line) for line in capsys.readouterr().out.splitlines()}
    for line in shown.splitlines():
        # by how much is a word, too
        if line.strip() not in ("", "...") and " would take " not in line:
            assert without_numbers(line) in said, line


def test_commands_are_parsed(repository: Path) -> None:
    found = commands(repository)
    group = typer.main.get_command(app)
    context = typer.Context(group)
    assert {words[0] for words in found} >= {"plan", "explain", "run", "verify", "show", "diff"}
    for name, *arguments in found:
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        assert command is not None, name
        command.make_context(name, arguments)


@pytest.mark.long
def test_commands_in_blocks_run(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(repository / "examples")
    for block in blocks(repository, "bash"):
        for line in block.splitlines():
            if line.startswith("autoplan "):
                with pytest.raises(SystemExit) as ended:
                    main(shlex.split(line)[1:])
                assert not ended.value.code, line


def test_targets_are_in_the_makefile(repository: Path) -> None:
    makefile = (repository / "Makefile").read_text(encoding="utf-8")
    lines = [line for block in blocks(repository, "bash") for line in block.splitlines()]
    targets = {line.split()[1] for line in lines if line.startswith("make ")}
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target

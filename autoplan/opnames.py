"""Names of operators as people say them: ``mm in convs.1.lin`` and not ``aten.mm.default``. No torch."""

from __future__ import annotations


def op_name(name: str) -> str:
    """``aten.relu_.default`` as ``relu_``: without its library and its overload."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else name


def made_by(text: str) -> str:
    """Where a tensor comes from (``aten.mm in convs.1.lin``, ``aten.relu in forward``) as ``mm in convs.1.lin``.

    A plan says ``forward`` for what the model's own forward calls. Text of any other form stays as it is.
    """
    name, word, module = text.partition(" in ")
    if not word:
        return text
    return f"{op_name(name)} in {'the model itself' if module == 'forward' else module}"

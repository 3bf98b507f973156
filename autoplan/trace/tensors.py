"""The tensors of a program in single assignment, as far as they are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from autoplan.opgraph import State, TensorMeta
from autoplan.trace.rules.axes import Dims


@dataclass(slots=True)
class TensorTable:
    """Every version of every value: an op that writes ``v5`` in place makes ``v5.1``.

    Attributes:
        metas: by version name, in program order.
        current: the program's name of a value -> its newest version.
        identities, owned_where: by version name, see `trace.rules.call.Output`.
        values: version name -> the program's name.
    """

    metas: dict[str, TensorMeta] = field(default_factory=dict)
    current: dict[str, str] = field(default_factory=dict)
    identities: dict[str, str] = field(default_factory=dict)
    owned_where: dict[str, Mapping[bool, frozenset[str]]] = field(default_factory=dict)
    values: dict[str, str] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)

    def of(self, value: str) -> TensorMeta:
        """The newest version of a value."""
        return self.metas[self.current[value]]

    def dims_of(self, value: str) -> Dims:
        """Dimensions of the newest version of a value."""
        return self.of(value).dims

    def add(self, meta: TensorMeta, states: tuple[State, ...]) -> TensorMeta:
        """Enters a tensor under its program's name; a value that is there already gets a new version, which is returned."""
        value = meta.name
        meta = replace(meta, states=states)
        if value in self.current:
            self._versions[value] = self._versions.get(value, 0) + 1
            meta = replace(meta, name=f"{value}.{self._versions[value]}")
        self.metas[meta.name] = meta
        self.current[value] = meta.name
        self.values[meta.name] = value
        return meta

    def change(self, name: str, meta: TensorMeta) -> None:
        """Replaces what is known of a version."""
        self.metas[name] = meta

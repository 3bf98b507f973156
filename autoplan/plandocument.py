"""A plan's document before it is a plan: is it whole, is it one, is it of this version? Text and JSON alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from autoplan.consistency import broken_seal, contradictions, misshapen, shown
from autoplan.errors import PlanError

_REMEDY = "do not edit plan files: plan again with what should differ"


def parsed(text: str) -> Any:
    """The JSON document. Raises PlanError where it is none, is cut off, has a field twice or a number that is not finite."""
    try:
        document = json.loads(text, object_pairs_hook=_object)
        json.dumps(document, allow_nan=False)
    except json.JSONDecodeError as error:
        if _cut_off(text, error):
            raise PlanError(
                f"this is no whole plan, the file ends in the middle (line {error.lineno}); "
                f"copy it again, or plan again"
            ) from error
        raise PlanError(f"this is no plan, it is not JSON: {error}") from error
    except (ValueError, RecursionError) as error:
        raise PlanError(f"this is no plan, {error}") from error
    return document


def check_version(document: Any, reads: int) -> None:
    """Raises PlanError where a JSON document is no plan, or one of another version than ``reads``."""
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int or "autoplan_version" not in document:
        raise PlanError(
            f"this is no plan, it is {_described(document)}; give a file that plan.save(path) "
            f"or `autoplan plan ... --save` wrote"
        )
    made_by = document["autoplan_version"]
    if version > reads:
        raise PlanError(
            f"this is a plan of version {version}, made by a newer autoplan ({made_by}); "
            f"this one reads version {reads}: update it, or plan again"
        )
    if version < reads:
        raise PlanError(
            f"this is a plan of version {version}, made by an older autoplan ({made_by}); "
            f"this one reads version {reads}: plan again"
        )


def misfit(location: Sequence[int | str], detail: Mapping[str, Any]) -> str:
    """A field of the wrong type, as pydantic says it: ``stages[0].devices[1] is "one", but input should be ...``."""
    path = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in location)
    said = f"{detail['msg'][:1].lower()}{detail['msg'][1:]}"
    if detail["type"] == "missing":
        return f"{path.lstrip('.')} is missing"
    return f"{path.lstrip('.')} is {shown(detail['input'])}, but {said}"


def check_document(document: Mapping[str, Any], plan: Mapping[str, Any]) -> None:
    """Holds a plan's document to itself.

    Args:
        document: as read.
        plan: the same without its seals, with exactly the fields that a plan has.

    Raises:
        PlanError: a field is missing, unknown, contradicts others or was changed; names it by its JSON path.
    """
    written = document.get("seals")
    if not isinstance(written, dict):
        raise PlanError(f"this plan is not whole: seals is {shown(written)}; plan again")
    content = {key: value for key, value in document.items() if key != "seals"}
    wrong = misshapen(content, plan) or next(contradictions(plan), None)
    if wrong is not None:
        raise PlanError(f"this plan contradicts itself: {wrong}; {_REMEDY}")
    changed = broken_seal(plan, written)
    if changed is not None:
        path, value = changed
        raise PlanError(
            f"this plan was changed by hand: {path} is {shown(value)}, but autoplan wrote something else there (see "
            f"seals), and memory and prices are for that; {_REMEDY}"
        )


def _described(document: Any) -> str:
    """What a JSON document is, for people who took it for a plan."""
    if not isinstance(document, dict):
        kind = {list: "array", str: "string", bool: "boolean", type(None): "null"}
        return f"a JSON {kind.get(type(document), 'number')}"
    if not document:
        return "an empty JSON object"
    names = list(document)
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"a JSON object with {', '.join(names[:4])}{more}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object. Raises ValueError for a key that it has twice, of which one would not count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"it has the field {twice!r} twice in one object; keep one")
    return found


def _cut_off(text: str, error: json.JSONDecodeError) -> bool:
    """Whether an object begins and reading failed because the text ends before it does."""
    ends_early = not text.rstrip().endswith("}") or not text[error.pos :].strip()
    return text.lstrip().startswith("{") and ends_early

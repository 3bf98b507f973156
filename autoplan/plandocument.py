"""A plan's document before it is a plan: is it whole, is it one, is it of this version? Text and JSON alone."""

from __future__ import annotations

import json
from typing import Any

from autoplan.errors import PlanError


def parsed(text: str) -> Any:
    """The JSON document. Raises PlanError where it is none, is cut off, or has a number that is not finite."""
    try:
        document = json.loads(text)
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


def _cut_off(text: str, error: json.JSONDecodeError) -> bool:
    """Whether an object begins and reading failed because the text ends before it does."""
    ends_early = not text.rstrip().endswith("}") or not text[error.pos :].strip()
    return text.lstrip().startswith("{") and ends_early

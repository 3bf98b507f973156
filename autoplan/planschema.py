"""The JSON schema of plan files, for programs that read them without autoplan. No torch.

`docs/plan.schema.json` is its output: ``python -m autoplan.planschema > docs/plan.schema.json``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pydantic import TypeAdapter

from autoplan.plan import PLAN_VERSION, PlanData

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def plan_schema() -> dict[str, Any]:
    """The schema of `PlanData.to_json`'s documents, made from the dataclasses; ``version`` is this version alone."""
    schema = TypeAdapter(PlanData).json_schema(mode="serialization")
    schema["properties"]["version"]["const"] = PLAN_VERSION
    schema["properties"]["seals"] = {
        "description": "By JSON path of what decides how the plan runs, a digest of its value: tells an edit by hand.",
        "type": "object",
        "additionalProperties": {"type": "string"},
    }
    schema["required"] = [*schema["required"], "seals"]
    return {"$schema": DIALECT, **schema, "title": f"autoplan plan, version {PLAN_VERSION}"}


def schema_text() -> str:
    """The schema as the text of a file."""
    return json.dumps(plan_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())

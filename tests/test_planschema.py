from __future__ import annotations

import json
from pathlib import Path

from autoplan.plan import PLAN_VERSION
from autoplan.planschema import plan_schema, schema_text
from tests.report.plans import data_plan


def test_the_published_schema_is_current(repository: Path) -> None:
    published = (repository / "docs/plan.schema.json").read_text(encoding="utf-8")
    assert published == schema_text(), "run: python -m autoplan.planschema > docs/plan.schema.json"


def test_the_schema_describes_every_field_of_a_plan() -> None:
    schema = plan_schema()
    document = json.loads(data_plan().to_json())
    assert list(schema["properties"]) == list(document) == schema["required"]
    assert schema["properties"]["version"]["const"] == PLAN_VERSION
    (stage,) = document["stages"]
    assert list(schema["$defs"]["StagePlan"]["properties"]) == list(stage)

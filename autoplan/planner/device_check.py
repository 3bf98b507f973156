"""Whether the devices here are those that a plan was made for, to the figures that its prices come from."""

from __future__ import annotations

from autoplan.cluster import used_cluster
from autoplan.clusteruse import device_differences
from autoplan.device import Cluster
from autoplan.errors import PlanError
from autoplan.plan import PlanData
from autoplan.search.fingerprint import devices_fingerprint

_SHOWN = 4
"""So many differences are told."""


def check_devices(data: PlanData, cluster: Cluster) -> None:
    """Raises PlanError where a plan was made for other devices: says what of profiles, memory, links or number differs."""
    if devices_fingerprint(cluster) == data.fingerprints.devices:
        return
    found = device_differences(data.cluster, used_cluster(cluster))
    told = "; ".join(found[:_SHOWN]) or "links of other names"
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    raise PlanError(
        f"the plan was made for other devices: {told}{more}; plan again with autoplan.optimize, or keep its strategies "
        "and price them for the devices here: plan.rebind(graph, model)"
    )

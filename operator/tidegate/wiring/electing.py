"""The operator's part in the election, where it has a Lease."""

from __future__ import annotations

import secrets
import socket

from tidegate.election.candidate import Candidate, Identity
from tidegate.election.elector import Elector, Told
from tidegate.kube.lease_client import LeaseClient
from tidegate.wiring.shared import Shared


def elector(shared: Shared, told: Told) -> Elector | None:
    settings, term = shared.settings, shared.term
    if term is None:
        return None
    timing = settings.election
    leases = LeaseClient(shared.serving_client, shared.clock, settings.namespace, settings.lease, timing.call_s)
    identity = Identity(settings.replica or socket.gethostname(), secrets.token_hex(4), is_alone=bool(settings.replica))
    return Elector(Candidate(identity, timing), leases, shared.clock, term, told)

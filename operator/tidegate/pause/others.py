"""What other pauses have recorded of what they have stopped, which is nobody else's to start."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from tidegate.kube.ports import PAUSES, Kube, Object, label_of, uid_of
from tidegate.pause.plan import FINALIZER
from tidegate.resources.base import ResourceModel
from tidegate.resources.pause import ScaledWorkload, StoppedConnector

_log = logging.getLogger(__name__)

_WORKLOADS: Final = "workloads"
_CONNECTOR: Final = "connector"

Record = TypeVar("Record", bound=ResourceModel)


def other_pauses(kube: Kube, pause_uid: str) -> Iterator[Object]:
    """Those that count: one without the finalizer has done nothing yet, and may go without a word, so that nothing is
    left to it. Raises ``KubeFailure``."""
    for body in kube.list(PAUSES):
        if uid_of(body) != pause_uid and FINALIZER in (body["metadata"].get("finalizers") or ()):
            yield body


def workloads_of(body: Object) -> Iterator[ScaledWorkload]:
    """What the pause has scaled."""
    rows = _status(body).get(_WORKLOADS)
    for row in rows if isinstance(rows, list) else ():
        yield from _read(ScaledWorkload, row, body)


def connector_of(body: Object) -> StoppedConnector | None:
    """The connector that the pause has stopped."""
    return next(_read(StoppedConnector, _status(body).get(_CONNECTOR), body), None)


def _status(body: Object) -> Mapping[str, Any]:
    status = body.get("status")
    return status if isinstance(status, Mapping) else {}


def _read(model: type[Record], row: Any, body: Object) -> Iterator[Record]:
    """The record as far as this version knows it: a newer one may have written more, there or elsewhere in the status,
    and what its pause has stopped stays so all the same."""
    if not isinstance(row, Mapping):
        return
    known = {field.alias or name for name, field in model.model_fields.items()}
    try:
        yield model.model_validate({name: value for name, value in row.items() if name in known})
    except ValidationError:
        _log.warning("%s: a record of what this pause has stopped can't be read", label_of(body))

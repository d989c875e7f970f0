"""``/metrics``: who may read it, and what is answered.

With ``kubernetes`` a reader shows a bearer token: the API server says whose it is (``authentication.k8s.io/v1
TokenReview``) and whether that user may ``get`` the non-resource URL ``/metrics`` (``authorization.k8s.io/v1
SubjectAccessReview``), as kube-rbac-proxy and the control plane's own servers do. A token with an audience of its own
opens nothing else, so that whoever is shown it can do nothing with it. Whoever cannot be asked about is
turned away.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from tidegate.kube.ports import KubeFailure, User
from tidegate.service.http_server import Answer, Route

_log = logging.getLogger(__name__)

METRICS_PATH: Final = "/metrics"

_ALLOWED_S: Final = 60.0
_REFUSED_S: Final = 10.0
"""How long an answer is kept: a right that is taken away ends within the former, a new one begins within the latter."""

_KEPT: Final = 256
"""Answers of either kind."""
_BURST: Final = 20
_REVIEWS_PER_S: Final = 5.0
"""Of tokens that were never allowed: whoever makes some up must not keep the API server busy."""
_LONGEST_TOKEN: Final = 16 * 1024


class Verdict(Enum):
    """Whether a reader may read."""

    ALLOWED = HTTPStatus.OK
    UNKNOWN = HTTPStatus.UNAUTHORIZED
    """Nobody knows whose token it is."""
    FORBIDDEN = HTTPStatus.FORBIDDEN
    UNDECIDED = HTTPStatus.SERVICE_UNAVAILABLE
    """The API server could not be asked."""


class Reviews(Protocol):
    """The API server's word on users. Raises ``KubeFailure``."""

    def user_of_token(self, token: str, audience: str) -> User | None:
        """``None``: it is nobody's, or not any more, or not for this audience. ``audience`` empty: the API server's."""
        ...

    def may_get(self, user: User, path: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Known:
    verdict: Verdict
    until_s: float


class TokenAccess:
    """Judges bearer tokens; thread-safe. Keeps digests of them, never tokens. ``audience``: for whom they have to be;
    empty: for the API server.
    """

    def __init__(self, reviews: Reviews, monotonic: Callable[[], float], audience: str = "") -> None:
        self._reviews = reviews
        self._audience = audience
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # Apart, so that tokens that somebody makes up displace none that is allowed.
        self._allowed: OrderedDict[bytes, _Known] = OrderedDict()
        self._refused: OrderedDict[bytes, _Known] = OrderedDict()
        self._reviews_left, self._counted_at = float(_BURST), monotonic()
        self._trouble = ""

    def judge(self, headers: Mapping[str, str]) -> Verdict:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or len(token) > _LONGEST_TOKEN or not token.isascii():
            return Verdict.UNKNOWN
        digest = hashlib.sha256(token.encode()).digest()
        with self._lock:
            known = self._allowed.get(digest) or self._refused.get(digest)
            if known is not None and self._monotonic() < known.until_s:
                return known.verdict
            if digest not in self._allowed and not self._may_ask():
                return Verdict.UNDECIDED
        verdict = self._review(token)
        if verdict is not Verdict.UNDECIDED:
            is_allowed = verdict is Verdict.ALLOWED
            kept, kept_s = (self._allowed, _ALLOWED_S) if is_allowed else (self._refused, _REFUSED_S)
            with self._lock:
                self._allowed.pop(digest, None)
                self._refused.pop(digest, None)
                kept[digest] = _Known(verdict, self._monotonic() + kept_s)
                while len(kept) > _KEPT:
                    kept.popitem(last=False)
        return verdict

    def _may_ask(self) -> bool:
        """Whether the API server may be asked about one more token that is not known to be allowed."""
        now = self._monotonic()
        self._reviews_left = min(float(_BURST), self._reviews_left + (now - self._counted_at) * _REVIEWS_PER_S)
        self._counted_at = now
        if self._reviews_left < 1:
            return False
        self._reviews_left -= 1
        return True

    def _review(self, token: str) -> Verdict:
        try:
            user = self._reviews.user_of_token(token, self._audience)
            if user is None:
                verdict = Verdict.UNKNOWN
            else:
                verdict = Verdict.ALLOWED if self._reviews.may_get(user, METRICS_PATH) else Verdict.FORBIDDEN
        except KubeFailure as failure:
            self._tell(f"{failure}. The operator needs create on tokenreviews and subjectaccessreviews")
            return Verdict.UNDECIDED
        self._tell("")
        return verdict

    def _tell(self, trouble: str) -> None:
        with self._lock:
            fresh, self._trouble = trouble != self._trouble, trouble
        if fresh and trouble:
            _log.warning("the operator could not check who reads %s: %s", METRICS_PATH, trouble)


_REFUSALS: Final = {
    Verdict.UNKNOWN: b"a bearer token of this cluster is needed, for the audience of these metrics\n",
    Verdict.FORBIDDEN: b"the token's user may not get the non-resource URL /metrics: bind it to a role that may\n",
    Verdict.UNDECIDED: b"the API server did not say whose token this is, or was asked too often: try again\n",
}


def metrics_route(registry: CollectorRegistry, access: TokenAccess | None) -> Route:
    """``access`` ``None``: everybody who reaches the address may read."""

    def route(headers: Mapping[str, str]) -> Answer:
        verdict = Verdict.ALLOWED if access is None else access.judge(headers)
        if verdict is Verdict.ALLOWED:
            return Answer(HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(registry))
        # RFC 6750, section 3
        challenge = {"WWW-Authenticate": "Bearer"} if verdict is Verdict.UNKNOWN else {}
        return Answer(verdict.value, "text/plain", _REFUSALS[verdict], challenge)

    return route

"""Who gets an answer, and what a browser may do with one.

The page is on loopback, which every process and user of the machine reaches, and every web site that the person has
open can have the browser send requests to. So each request that reads or changes anything carries the token, in a
header that no other origin can set; it is in no cookie, since browsers send those to every port of a host. The name in
``Host`` has to be ours, which stops names of others that lead here (DNS rebinding), and ``Origin`` as well.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Middleware

HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types tidegate"
    ),
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Server": "tidegate",
}

API: Final = "/api/"
_SCHEME: Final = "Bearer "

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Guard:
    """``host``: what ``Host`` has to be, such as ``127.0.0.1:8080``."""

    def __init__(self, host: str, token: str) -> None:
        self._host = host
        self._origin = f"http://{host}"
        self._token = token.encode()

    def refusal(self, request: web.Request) -> web.Response | None:
        """``None``: it may pass."""
        if request.headers.getall("Host", []) != [self._host]:
            return _refused(421, "this is not the host that the page is served at")
        origin = request.headers.get("Origin")
        if origin is not None and origin != self._origin:
            return _refused(403, "requests from another origin are refused")
        if not request.path.startswith(API):
            return None
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return _refused(403, "requests from another site are refused")
        if request.method == "POST" and (origin is None or request.content_type != "application/json"):
            return _refused(403, "only the page itself may ask for a change, as JSON")
        given = request.headers.get("Authorization", "")
        if not given.startswith(_SCHEME) or not self._is_token(given.removeprefix(_SCHEME)):
            return _refused(401, "the token is missing, or is not that of this page: open the address that was printed")
        return None

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(errors="surrogateescape"), self._token)


def _refused(status: int, message: str) -> web.Response:
    return web.json_response({"message": message}, status=status)


def guarded(guard: Guard) -> Middleware:
    """The middleware: refuses before a handler is looked for, and turns what is not there into plain answers."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        refused = guard.refusal(request)
        if refused is not None:
            return refused
        try:
            return await handler(request)
        except web.HTTPException as answer:
            return _refused(answer.status, answer.reason)

    return middleware


async def with_headers(_request: web.Request, response: web.StreamResponse) -> None:
    """For ``on_response_prepare``: on every answer, also on refusals and streams."""
    response.headers.update(HEADERS)

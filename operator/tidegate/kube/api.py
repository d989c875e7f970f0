"""The API server as jobs and the command line reach it as well: which one it is, and calls that outlast its absence."""

from __future__ import annotations

import binascii
import os
from collections.abc import Callable
from json import JSONDecodeError
from typing import Any, Final

import urllib3

from tidegate.clock import Clock
from tidegate.kube import kubeconfig
from tidegate.kube.answers import NO_JSON, message_of, why_unanswered
from tidegate.kube.deferred import defer_unused

API_TIMEOUT_S: Final = (5.0, 15.0)
"""(connecting, reading) of one call to the API server."""


_CONNECTIONS: Final = 256
"""That are kept open: as many as there are threads that call at once. One too many is opened for each call, and each
greets the API server by TLS."""


class NoCluster(Exception):
    """No API server is configured; the message says what was looked for."""


class NotLeading(OSError):
    """Nothing was sent: this process may not write any more, or not yet. To callers the API server is out of reach,
    which leaves open what is there: another process may have written it."""


class PatientCalls:
    """Calls to the API server about one object, said again while it does not answer, at most ``patience_s`` long.

    ``unavailable`` is raised then: whether the last write happened is unknown, reading it again tells. It is raised at
    once where the call is refused by :class:`NotLeading`: a process that leads no more has to end, without waiting.
    """

    def __init__(self, location: str, clock: Clock, patience_s: float, unavailable: type[Exception]) -> None:
        self._location = location
        self._clock = clock
        self._patience_s = patience_s
        self._unavailable = unavailable

    def __call__(self, method: Callable[..., Any], *arguments: Any) -> tuple[int | None, Any]:
        """``(None, object)``, or the HTTP status and the server's message. Raises ``unavailable``."""
        from kubernetes.client.exceptions import ApiException

        deadline = self._clock.monotonic() + self._patience_s
        pause_s, was_away = 0.1, False
        while True:
            try:
                return None, method(*arguments, _request_timeout=API_TIMEOUT_S)
            except ApiException as error:
                # An API server that just came up refuses everybody until it has read the roles.
                transient = error.status in (0, 429, 500, 502, 503, 504) or (was_away and error.status in (401, 403))
                if not transient:
                    return error.status, message_of(error)
                reason = f"{error.status} {message_of(error)}"
            except NotLeading as error:
                raise self._unavailable(f"can't write {self._location}: {error}") from error
            except (urllib3.exceptions.HTTPError, OSError) as error:
                reason = why_unanswered(error)
            except (JSONDecodeError, UnicodeDecodeError):
                reason = NO_JSON
            was_away = True
            if self._clock.monotonic() + pause_s > deadline:
                raise self._unavailable(f"the API server did not take {self._location} in time: {reason}")
            self._clock.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)


def default_api_client(context: str | None = None) -> Any:
    """A ``kubernetes.client.ApiClient`` of ``KUBECONFIG`` where that is set, else of the pod's service account, else of
    the user's kubeconfig. Its calls are never retried unseen: whoever writes has to look again first.

    ``context``: the kubeconfig's, where that is not its current one.

    Raises ``NoCluster`` when there is no configuration, or none that can be read.
    """
    defer_unused()
    from kubernetes import client, config

    configuration = client.Configuration()
    try:
        if kubeconfig.is_asked(os.environ, context):
            current = kubeconfig.current_context(os.environ)
            config.load_kube_config(
                # Named here: the official client keeps what KUBECONFIG was when it was imported.
                config_file=os.pathsep.join(map(str, kubeconfig.files(os.environ))),
                client_configuration=configuration,
                context=context or current,
            )
        else:
            config.load_incluster_config(client_configuration=configuration)
    except (config.ConfigException, kubeconfig.Unreadable) as error:
        raise NoCluster(f"no cluster is configured: {error}") from error
    except binascii.Error as error:
        raise NoCluster("no cluster is configured: a certificate or key in the kubeconfig is no base64") from error
    configuration.retries = urllib3.Retry(total=0)
    configuration.connection_pool_maxsize = _CONNECTIONS
    return client.ApiClient(configuration)

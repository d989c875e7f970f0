"""An operator that only watches: what kopf itself takes for as many objects. ``python bare_kopf.py NAMESPACE``.

It reads the kubeconfig of ``KUBECONFIG``, and runs until it is told to stop.
"""

from __future__ import annotations

import sys
from typing import Any

import kopf

KINDS = ("kafkaconnections", "consumergrouppauses", "offsetresetpolicies", "offsetresets")
VERSION = "tidegate.io/v1alpha1"


def main(namespace: str) -> None:
    @kopf.on.startup()
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.peering.standalone = True
        settings.scanning.disabled = True

    def seen(**_: Any) -> None:
        """Nothing is done about it."""

    for kind in KINDS:
        kopf.on.event(VERSION, kind)(seen)
    kopf.run(namespaces=[namespace], standalone=True)


if __name__ == "__main__":
    main(sys.argv[1])

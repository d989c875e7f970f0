"""What `helm test` runs in a pod: exit code 0 when the operator is healthy and its kinds are served.

Without a Service (`metrics.service`) the operator has no address, and only the latter is looked at.
"""

import json
import os
import ssl
import sys
import time
import urllib.request
from pathlib import Path

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
KINDS = {
    "kafkaconnections",
    "consumergrouppauses",
    "offsetresetpolicies",
    "offsetresets",
    "offsetresetapprovals",
    "offsetbackups",
    "offsetmirrors",
}


def healthy() -> str:
    with urllib.request.urlopen(os.environ["HEALTH"], timeout=5) as answer:
        return "healthy" if json.load(answer)["healthy"] else ""


def served() -> str:
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    server = f"[{host}]" if ":" in host else host
    url = f"https://{server}:{os.environ['KUBERNETES_SERVICE_PORT']}/apis/tidegate.io/v1alpha1"
    token = (ACCOUNT / "token").read_text()
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    with urllib.request.urlopen(request, timeout=5, context=context) as answer:
        names = {resource["name"] for resource in json.load(answer)["resources"]}
    return "served: " + ", ".join(sorted(KINDS)) if names >= KINDS else ""


checks = [healthy, served] if "HEALTH" in os.environ else [served]
deadline = time.monotonic() + 60
for check in checks:
    while True:
        try:
            found = check()
        except OSError as error:
            found, trouble = "", str(error)
        else:
            trouble = "not yet"
        if found:
            print(found)
            break
        if time.monotonic() > deadline:
            sys.exit(f"{check.__name__}: {trouble}")
        time.sleep(1)
if "HEALTH" not in os.environ:
    print("health: not asked, because there is no Service (metrics.service)")

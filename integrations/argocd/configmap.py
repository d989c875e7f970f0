"""Writes ``argocd-cm.yaml`` beside it from ``resource_customizations/``: ``python integrations/argocd/configmap.py``.

The scripts lie in Argo CD's own layout; a ConfigMap ``argocd-cm`` carries them into an Argo CD that lacks them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parent
FILE: Final = FOLDER / "argocd-cm.yaml"

_HEAD: Final = """\
# Made from resource_customizations/ by configmap.py; do not edit.
# kubectl patch configmap argocd-cm --namespace argocd --patch-file argocd-cm.yaml
apiVersion: v1
kind: ConfigMap
metadata:
  name: argocd-cm
  namespace: argocd
  labels:
    app.kubernetes.io/name: argocd-cm
    app.kubernetes.io/part-of: argocd
data:
"""


def text(customizations: Path = FOLDER / "resource_customizations") -> str:
    """The ConfigMap's manifest."""
    found = [_HEAD]
    for script in sorted(customizations.glob("*/*/health.lua")):
        group, kind = script.parts[-3:-1]
        found += [f"  resource.customizations.health.{group}_{kind}: |\n", _indented(script, 4)]
        discovery = script.parent / "actions" / "discovery.lua"
        if discovery.exists():
            found += [f"  resource.customizations.actions.{group}_{kind}: |\n", "    discovery.lua: |\n"]
            found += [_indented(discovery, 6), "    definitions:\n"]
            for action in sorted(discovery.parent.glob("*/action.lua")):
                found += [f"    - name: {action.parent.name}\n", "      action.lua: |\n", _indented(action, 8)]
    return "".join(found)


def _indented(script: Path, by: int) -> str:
    lines = script.read_text().splitlines(keepends=True)
    return "".join(" " * by + line if line.strip() else line for line in lines)


if __name__ == "__main__":
    FILE.write_text(text())
    sys.stderr.write(f"wrote {FILE}\n")

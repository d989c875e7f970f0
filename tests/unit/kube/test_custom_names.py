"""An empty name, as of a variable that is not set, is nobody's: it must not stand for all of them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from tidegate.kube.custom import CustomResources
from tidegate.kube.ports import Kind

KIND = Kind("tidegate.io", "v1alpha1", "consumergrouppauses", "ConsumerGroupPause")


@pytest.mark.parametrize(
    "ask",
    [
        lambda of: of.read(KIND, "shop", ""),
        lambda of: of.patch(KIND, "shop", "", {}),
        lambda of: of.replace_status(KIND, "shop", "", {}),
        lambda of: of.delete(KIND, "shop", "", {}),
    ],
    ids=["read", "patch", "replace_status", "delete"],
)
def test_an_empty_name_is_refused_before_anything_is_asked(ask: Callable[[CustomResources], Any]) -> None:
    with pytest.raises(ApiException, match="no ConsumerGroupPause has an empty one"):
        ask(CustomResources(SimpleNamespace()))

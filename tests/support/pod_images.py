"""The images of all that runs in pods in ``make e2e``: ``python -m support.pod_images`` builds them ahead."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from devstack import MissingPrerequisiteError, StackError
from devstack.images import build_image
from devstack.spark_operator import spark_operator_image
from devstack.toolcache import say
from support.java_builds import packaged
from support.pods import APPLICATION, SPRING_BOOT

APPLICATION_IMAGE: Final = "docker.io/library/bookkeeper:dev"
SPRING_BOOT_IMAGE: Final = "docker.io/library/bookkeeper-spring-boot:dev"


def build_images() -> list[Path]:
    """Build them, quickly where nothing has changed; the files for ``Node.load``, without the Spark operator's.

    That one is loaded as it is installed. Raises ``StackError`` and ``MissingPrerequisiteError``.
    """
    application = build_image(
        "bookkeeper", name=APPLICATION_IMAGE, context=APPLICATION, dockerfile=APPLICATION / "Dockerfile"
    )
    spring_boot = build_image("bookkeeper", name=SPRING_BOOT_IMAGE, context=packaged(), dockerfile=SPRING_BOOT)
    ours = [build_image(target) for target in ("operator", "agent", "spark")]
    spark_operator_image()
    return [*ours, application, spring_boot]


def main() -> int:
    """Exit code 0, 2 where something is missing on the machine, 1 where a build failed."""
    try:
        build_images()
    except MissingPrerequisiteError as error:
        say(str(error))
        return 2
    except StackError as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

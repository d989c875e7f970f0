"""``python -m demo [--plain]``. 0: all is well; 1: not; 2: something could not be started, one line says what."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT / folder) for folder in ("dev", "tests")]


def main() -> int:
    """Play the demo and say how it went."""
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Resets a live consumer group's offsets on real parts, and undoes that; a checker judges the "
        "outcome.",
        epilog="Uses the broker of TIDEGATE_BOOTSTRAP and the cluster of KUBECONFIG if these are set.",
    )
    parser.add_argument(
        "--plain", action="store_true", help="print lines instead of a live view, as is always done without a terminal"
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE.svg",
        help="print lines, and write what a terminal would show to this file, as an animated SVG",
    )
    options = parser.parse_args()
    try:
        from demo.cluster import ClusterError
        from demo.recording import RecordingScreen
        from demo.screen import LiveScreen, PlainScreen, Screen
        from demo.story import StoryError, tell
        from demo.traffic import TrafficError
        from devstack import StackError
        from support.clients import FleetError
        from support.clients.java import java_classes
    except ModuleNotFoundError as absent:
        print(f"missing: Python package {absent.name}; run `make demo`, which installs what is needed", file=sys.stderr)
        return 2
    # As Ctrl-C: everything that was started is ended on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        java_classes()  # compiled once; its progress would spoil a live view
        screen: Screen
        if options.record is not None:
            screen = RecordingScreen(options.record)
        else:
            screen = PlainScreen() if options.plain or not sys.stdout.isatty() else LiveScreen()
        with screen:
            return 0 if tell(screen) else 1
    except (StackError, ClusterError) as failure:
        print(failure, file=sys.stderr)
        return 2
    except (StoryError, TrafficError, FleetError) as failure:
        print(f"the demo failed: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("stopped; everything that the demo started has been ended", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())

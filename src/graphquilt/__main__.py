"""The entry point of the command line: Ctrl-C gives one sentence while the commands are still being imported, too."""

import os
import signal


def main() -> None:
    """Import the commands, and run one."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # otherwise interrupts are ignored, as in the background of a shell
        signal.signal(signal.SIGINT, _stop)
    from graphquilt.cli import main as run

    signal.signal(signal.SIGINT, before)
    run()


def _stop(_signal: int, _frame: object) -> None:
    """Leave at once: an exception would pass through the imports of other packages, which may turn it into another."""
    os.write(2, b"\ngraphquilt: stopped before it began.\n")
    os._exit(130)


if __name__ == "__main__":
    main()

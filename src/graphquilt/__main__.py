"""The entry point of the command line: Ctrl-C gives one sentence while the commands are still being imported, too."""

import sys


def main() -> None:
    """Import the commands, and run one."""
    try:
        from graphquilt.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("\ngraphquilt: stopped before it began.\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()

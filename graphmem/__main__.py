"""The entry point of `graphmem` and `python -m graphmem`.

A hook of a coding agent runs at every prompt: it must not wait for the imports of the command line.
"""

import sys


def main() -> None:
    """Runs the command that the arguments of the process name."""
    if sys.argv[1:2] == ["hook"]:
        from graphmem.coding_agents.hook import main as run_hook  # noqa: PLC0415

        run_hook(sys.argv[2:])
        return
    from graphmem.cli.app import main as run_command  # noqa: PLC0415

    run_command()


if __name__ == "__main__":
    main()

"""Runs the command line: `python -m graphmem` is the same as `graphmem`."""

from graphmem.cli.app import main

if __name__ == "__main__":
    main()

"""Runs the command line as `python -m graphmem`."""

from graphmem.cli.app import main

if __name__ == "__main__":
    main()

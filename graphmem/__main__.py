"""`python -m graphmem` is the same as `graphmem`."""

from graphmem.interfaces.cli import main

if __name__ == "__main__":
    main()

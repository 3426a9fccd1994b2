"""`graphmem graph`: prints the memory graph or a neighbourhood in it, or writes it to a file for other programs."""

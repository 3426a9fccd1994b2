"""`graphmem graph`: a neighbourhood of the memory graph, for people in a terminal or as a file for other programs."""

"""Converts the data of other memory programs, such as mem0, to records for `graphmem.transfer.importer`."""

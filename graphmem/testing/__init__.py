"""Small, fast, deterministic models for the tests of programs that use graphmem: real ones, without files or network.

HashEmbedder finds texts that share words; WordExtractor finds capitalised names. Neither knows what words mean.
"""

from __future__ import annotations

from graphmem.testing.models import HashEmbedder, WordExtractor

__all__ = ["HashEmbedder", "WordExtractor"]

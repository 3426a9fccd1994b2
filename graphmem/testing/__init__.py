"""Test doubles for programs that use graphmem: small, fast, deterministic models, and a model server.

HashEmbedder makes texts with common words similar; WordExtractor extracts capitalised names. Neither knows the meaning
of words. ModelEndpoint is an OpenAI-compatible server on loopback that answers by a script, whole or as a stream:
well, or with one of the faults in `behaviours`. NumpyIndex is a vector index that finds exactly what it should.
"""

from __future__ import annotations

from graphmem.testing import behaviours
from graphmem.testing.behaviours import Behaviour
from graphmem.testing.endpoint import ModelEndpoint
from graphmem.testing.models import HashEmbedder, WordExtractor
from graphmem.testing.numpy_index import NumpyIndex
from graphmem.testing.server import Request

__all__ = ["Behaviour", "HashEmbedder", "ModelEndpoint", "NumpyIndex", "Request", "WordExtractor", "behaviours"]

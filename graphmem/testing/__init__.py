"""For the tests of programs that use graphmem: models that are small, fast and the same everywhere, and a model server.

HashEmbedder finds texts that share words; WordExtractor finds capitalised names. Neither knows what words mean.
ModelEndpoint is an OpenAI-compatible server on loopback that answers as told: well, or as `behaviours` misbehave.
"""

from __future__ import annotations

from graphmem.testing import behaviours
from graphmem.testing.behaviours import Behaviour
from graphmem.testing.endpoint import ModelEndpoint, Request
from graphmem.testing.models import HashEmbedder, WordExtractor

__all__ = ["Behaviour", "HashEmbedder", "ModelEndpoint", "Request", "WordExtractor", "behaviours"]

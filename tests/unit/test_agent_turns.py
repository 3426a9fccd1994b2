"""The words of a turn: Claude Code's transcripts, turns that are told in parts, and the project that they belong to."""

from __future__ import annotations

"""Adapters for agent frameworks, one optional module for each; each needs the extra of its framework.

An adapter translates between the types of its framework and plain messages; all else is in `base` and `turns`.
"""

"""Adapters of agent frameworks, one module for each; every framework is an extra of its own."""

"""Doors for programs outside this process."""

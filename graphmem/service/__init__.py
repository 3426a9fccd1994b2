"""Servers for programs outside this process."""

"""Memory for coding agents: the program that their hooks call, and the installation into their configuration."""

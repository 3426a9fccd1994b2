"""Memories for clients of the Model Context Protocol (MCP): `graphmem mcp` over stdio, `mcp_app` over HTTP.

`tools` (on `base`, with `results`) say what a client can do, `server` answers its requests,
`http` finds out whose memories it may use. Needs the extra `mcp`.
"""

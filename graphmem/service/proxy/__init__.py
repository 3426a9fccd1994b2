"""The memory proxy: an OpenAI-compatible endpoint that adds memories to chats and stores them.

`chat_body` reads a request and replaces parts of it; `proxy` decides what is recalled and stored; `upstream` forwards
the request and its answer; `answers` reads the answer and keeps it until it counts; `routes` are the paths.
"""

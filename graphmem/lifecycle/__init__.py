"""The lifecycle of memories: how important they are, when they are forgotten, which are kept.

The modules beside this one are policies: they compute from records and a moment, and read and write nothing.
"""

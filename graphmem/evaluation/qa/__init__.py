"""The benchmark of answers: a language model answers from the notes of each system, others judge what it answered.

`systems` makes the notes, `run` the requests, the run and its forecast, `results` the file of a run, `report` the
measures of an answer, the figures, and what is written of them.
"""

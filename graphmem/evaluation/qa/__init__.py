"""The benchmark of answers: a language model answers from the notes of each system, others judge what it answered.

`systems` makes the notes, `asking` the requests, `results` the file of a run, `run` the run and its forecast, `scores`
the measures of an answer, `report` the figures, and `documents` what is written of them.
"""

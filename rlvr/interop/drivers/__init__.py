"""Drivers of other trainers for `rlvr referee`: each runs in its trainer's
interpreter, without rlvr.

A driver reads step files with rows and scores, has its trainer compute advantages and the loss, and
writes them with the weight of each token, by autograd, and with the conventions that the trainer's
authors chose, each with its source.
"""

__all__: list[str] = []

"""The trainer: policy, update and training loop.  Needs the extra `train` (torch, transformers)."""

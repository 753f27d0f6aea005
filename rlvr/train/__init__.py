"""The trainer: policy, samplers and the loop.  Needs the extra `train` (torch, transformers)."""

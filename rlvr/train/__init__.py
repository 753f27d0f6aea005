"""The trainer.  Needs the extra `train` (torch, transformers).

config, setup            settings of a run, and its parts made from them
loop                     `Trainer`: a training step as a whole
rollout_batch, credit    the groups of a step, and an advantage for each of their tokens
learner                  the update: loss, gradient, optimiser
policy, logprobs         the trained model and its token log-probabilities
batches, prompt_sharing  rows as padded tensors; one pass for a prompt that several rows share
checkpoint, run_dir      stopping and resuming; the folder of a run
metrics, plot            logs and curves
alarm, canary            stop a run that scores nothing, or whose sampler has other weights than the trainer
tiny                     a tiny model, for tests and demos
"""

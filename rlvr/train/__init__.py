"""The trainer.  Needs the extra `train` (torch, transformers).

sampling                 opens the sampler that the settings name: local, vLLM in this process, or servers
config, setup            settings of a run, and its parts made from them
loop                     `Trainer`: a training step as a whole
rollout_batch, credit    the groups of a step, and an advantage for each of their tokens
learner                  the update: loss, gradient, optimiser
policy, logprobs         the trained model and its token log-probabilities
loading, lora            models from folders or the hub; adapters that are trained instead of the weights
preferences, offline     learning from pairs and labels; the loop over a file of them
reward_model             a scalar head, trained on pairs or on steps
reward_head              the file of its head, and its version
learned_reward           what it says as a part of a reward
batches, packing         rows as tensors: padded, or side by side
prompt_sharing           one pass for a prompt that several rows share
memory                   what a run will take, before it begins
checkpoint, run_dir      stopping and resuming; the folder of a run
metrics, plot            logs and curves
alarm, canary            stop a run that scores nothing, or whose sampler has other weights than the trainer
tiny                     a tiny model, for tests and demos
"""

"""The trainer.  Needs the extra `train` (torch, transformers).

sampling                 opens the sampler that the settings name: local, vLLM in this process, or servers
config, setup            settings of a run, and its parts made from them
loop                     `Trainer`: a training step as a whole
rollout_batch, credit    the groups of a step, and an advantage for each of their tokens
learner                  the update: loss, gradient, optimiser
policy, logprobs         the trained model and its token log-probabilities
loading, lora            models from folders or the hub; adapters that are trained instead of the weights
ranks, shares            several processes, and the rows of files that each of them reads
preferences, offline     learning from pairs and labels; the loop over a file of them
reward_model             a scalar head, trained on pairs or on steps
reward_head              the file of its head, and its version
learned_reward           what it says as a part of a reward
batches, packing         rows as tensors: padded, or side by side
prompt_sharing           one pass for a prompt that several rows share
memory, costs            what a run will take, before it begins, and what a step took
checkpoint, run_dir      stopping and resuming; the folder of a run
metrics, plot            logs and curves
alarm, trends            lines, or an end, where numbers of a step or of many show that something is wrong
canary                   stops a run whose sampler has other weights than the trainer
tiny                     a tiny model, for tests and demos
"""

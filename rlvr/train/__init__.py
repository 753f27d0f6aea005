"""The trainer.  Needs the extra `train` (torch, transformers).  docs/path.md leads through a step.

loop                                      `Trainer`: a training step as a whole
config, settings, setup                   settings of a run; from a file; its parts made from them
stage, stages, schedule                   when settings change, and numbers over the steps
row_source, sources                       where the rows of a step come from
sampled_rows, rollout_batch, file_rows    … sampled and scored; the groups of a step; … from a file
credit, advantage_batches                 an advantage for each token; the batch, on every rank
step_rewards, novelty, replay             rewards of steps; repeated answers; earlier groups again
part, parts                               the seam of a step: what algorithms share; its small parts
learner, update_sizes                     the update: loss, gradient, optimiser; how many of them
preferences                               the update from pairs and labels
critic, trust_region, second_model        bigger parts; a model that learns beside the policy
reward_model, reward_losses, reward_head  a scalar head, its losses, its file
learned_reward, implicit, step_model      what it says as a part; by log-ratios; a step recomputed
teacher, texts, trained_rows              frozen policies; texts in the batch; texts as rows
policy, logprobs, loading, tiny           the model, its log-probabilities, its source; tiny
lora                                      adapters that are trained instead of the weights
batches, packing, prompt_sharing          rows padded, or side by side; one pass for a shared prompt
ranks, shares                             several processes; weights read in shards
tensor_parallel, context_parallel         layers, and rows, that ranks compute together
sampling, canary                          opens the sampler; checks that weights arrive
run_part, run_parts                       the seam of the loop: what a run does beside learning
evaluations, validation, task_strength    what only reports; what decides; reward by strength
alarm, trends                             what goes wrong silently, in a step and over many
recorder, step_recorder                   when steps are written to files, and how
example_recorder                          … steps of preferences
self_check, step_own, gradient_sketch     a run judges itself; a user's algorithm; 4,096 numbers
conformance                               `rlvr algorithms NAME --check`
checkpoint, run_dir, rollout_log          stopping and resuming; the folder of a run; its rollouts
metrics, plot, costs, memory, speed       logs, curves; what a step took and a run will take
dry_run                                   what a run would be, without beginning it

Contracts: `part.LearnerPart` for a step, `run_part.RunPart` for the loop, a field with a reader for
a setting.
Sees `collect`, `algo`, `samplers` and below; `interop` and above see it.
Goes wrong: a resumed run that differs in one bit, ranks that wait for each other, means over what
was left out.
"""

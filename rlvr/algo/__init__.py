"""The algorithms as pure functions on tensors; nothing here keeps state.

    scores [P, G] ──advantages──▶ [P, G] ──▶ [B, T] ──objectives──▶ losses [B, T] ──aggregation──▶ loss
    rewards [B, T] ──returns──▶ [B, T] ────────┘        + kl, terms; × corrections

`advantages`   a completion judged against its siblings or the batch
`returns`      time: discounting, GAE, n-step, steps with rewards or values of their own
`objectives`   what the policy is moved by, per token
`terms`        value loss, entropy bonus
`kl`           distance to the reference policy, in the loss or in the reward
`corrections`  weights for a sampler whose numbers are not the trainer's
`aggregation`  per-token losses to one number, with the whole batch's denominators
`presets`      published algorithms as data; needs no torch

Axes everywhere: P prompts, G completions per prompt; B rows (rollouts) of a micro-batch, T tokens of a completion.
"""

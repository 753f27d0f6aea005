"""The algorithms as pure functions on tensors; nothing here keeps state.

    scores [P, G] ──advantages──▶ [P, G] ──▶ [B, T] ──objectives──▶ losses [B, T] ──aggregation──▶ loss
    rewards [B, T] ──returns──▶ [B, T] ────────┘        + kl, terms; × corrections

`advantages`   one per completion: its score compared with its group's or the batch's
`returns`      one per token or step: discounted and n-step returns, GAE, process rewards, VinePPO
`objectives`   policy losses per token
`preferences`  losses on pairs and labels: DPO, IPO, KTO, reward models
`trust_region` TRPO and its Lagrangian form, for study; the KL over the whole vocabulary
`terms`        value loss, entropy bonus
`kl`           KL penalty against the reference policy, in the loss or in the reward
`corrections`  importance weights for a sampler whose log-probabilities differ from the trainer's
`aggregation`  losses per token to one number, with the whole batch's denominators
`registry`     every function by name, with what it needs; needs no torch
`presets`      published algorithms as data; needs no torch

Axes everywhere: P prompts, G completions per prompt; B rows (rollouts) of a micro-batch, T tokens
of a completion.
"""

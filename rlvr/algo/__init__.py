"""The algorithms as pure functions on tensors; nothing here keeps state.

    scores [P, G] ─advantages─▶ [P, G] ─▶ [B, T] ─objectives─▶ losses [B, T] ─aggregation─▶ loss
    rewards [B, T] ─returns─▶ [B, T] ───────┘    + kl, terms; × corrections

papers        published algorithms, one file each; needs no torch until one is used
parts         clips, penalties, critics and other parts as data; needs no torch
advantages    one per completion: its score compared with its group's or the batch's
returns       one per token or step: discounted and n-step returns, GAE, process rewards, VinePPO
ratios        of two policies' probabilities of the same tokens
objectives    policy losses per token
preferences   losses on pairs and labels: DPO, IPO, KTO, reward models
trust_region  TRPO and its Lagrangian form
terms         value loss, entropy bonus
kl            KL penalty against the reference policy, in the loss or in the reward
corrections   weights for a sampler whose log-probabilities differ from the trainer's
subsets       completions of a group, or tokens of an update, that are treated apart
control       coefficients that adapt from step to step
masks         masked sums and means
aggregation   losses per token to one number, with the whole batch's denominators
judge         the same formulas in float64, row by row, for recorded steps

Axes everywhere: P prompts, G completions per prompt; B rows (rollouts) of a micro-batch, T tokens
of a completion.

Contract: `papers.base.Algorithm`; a new algorithm is one file in `papers`, or of your own.
Sees `data` and the ground alone; `train`, `interop` and above see it.
Goes wrong: denominators (rows left out, empty micro-batches, ranks), and infinities at masked
tokens: 0 × inf is NaN, so masked entries are replaced before they are used.
"""

"""Every paper's torch code against the judge: its formulas in float64, row by row, with slopes by dual numbers."""

from dataclasses import asdict, replace
from math import exp, log

import numpy as np
import pytest
import torch

from rlvr.algo import aggregation
from rlvr.algo.judge import Setting, examples
from rlvr.algo.judge.advantages import advantages
from rlvr.algo.judge.losses import UpdateLoss
from rlvr.algo.judge.rows import StepRow
from rlvr.algo.kl import kl_loss
from rlvr.algo.masks import zero_masked
from rlvr.algo.objectives import Losses
from rlvr.algo.papers import NAMES, load_algorithm
from rlvr.algo.papers.base import Algorithm, Inputs
from rlvr.algo.preferences import gains
from rlvr.algo.ratios import log_ratio

G, T = 4, 6
LENGTHS = [3, 6, 1, 5, 4, 2, 6, 3]
SCORES = [1.0, 0.0, 0.0, 0.75, 0.5, 0.0, 0.25, 0.625]
DRAW = np.random.default_rng(3)
OLD = -DRAW.uniform(0.1, 2.0, (8, T))
NEW = np.minimum(OLD + 0.6 * DRAW.standard_normal((8, T)), -0.01)
REF = OLD + 0.3 * DRAW.standard_normal((8, T))
TEACHER = np.minimum(OLD + 0.8 * DRAW.standard_normal((8, T)), -0.01)
VALUES = DRAW.uniform(-0.5, 0.5, (8, T))
AFTER = [
    0.0,
    0.4,
    0.0,
    0.0,
    0.0,
    0.0,
    -0.2,
    0.0,
]  # the value after the last token of truncated rows
IMPLICIT = 0.3 * np.random.default_rng(4).standard_normal((8, T))
PARTS = DRAW.uniform(0.0, 1.0, (8, 3))
GREEDY = [0.5, 0.25]
MIDDLE = [max(1, length // 2) for length in LENGTHS]  # where a first step ends
GROUPS = [range(G), range(G, 2 * G)]
SELECTED = np.zeros((8, T), dtype=bool)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def tokens():
    return [(i, t) for i in range(8) for t in range(LENGTHS[i])]


def judged(made: Algorithm, new: np.ndarray = NEW, selected=SELECTED) -> UpdateLoss:
    """The judge's loss of one update at any numbers."""
    setting = Setting(made.name, numbers_of(made))
    rows = [row(made, i, new, selected) for i in range(8)]
    rows = [
        replace(one, advantages=own)
        for one, own in zip(rows, advantages(rows, setting), strict=True)
    ]
    return UpdateLoss(rows, rows, setting)


def numbers_of(made: Algorithm) -> dict:
    """What a step file's head has of an algorithm."""
    length = made.length_tokens or T
    known = {"aggregation": made.aggregation, "length_tokens": length, "average": None}
    return {"kl": None, "baseline": "none"} | asdict(made) | known


def row(made: Algorithm, i: int, new: np.ndarray, selected: np.ndarray) -> StepRow:
    """A row of the fixed batch."""
    length, middle = LENGTHS[i], MIDDLE[i]
    ends = [(0, VALUES[i, 0]), (middle, VALUES[i, 1]), (length, SCORES[i])]
    if made.forks == "greedy":
        ends = [(0, GREEDY[i // G]), (length, SCORES[i])]
    steps = [(middle, PARTS[i, 0])] * (middle < length) + [(length, SCORES[i])]
    own = slice(0, length)
    return StepRow(
        index=i,
        group=i // G,
        score=SCORES[i],
        scored=True,
        at=np.arange(length),
        length=length,
        behaviour=OLD[i, own],
        old=OLD[i, own],
        ref=REF[i, own],
        teacher=TEACHER[i, own],
        implicit=IMPLICIT[i, own],
        values=VALUES[i, own],
        end=AFTER[i],
        parts=PARTS[i],
        steps=steps if made.name == "grpo_process" else (),
        prefixes=sorted(dict(ends).items()),
        new=new[i, own],
        selected=selected[i, own],
    )


def rewards(beta=0.0):
    """The score on the last token, less the penalty of each token."""
    found = {(i, t): -beta * (OLD[i, t] - REF[i, t]) for i, t in tokens()}
    for i in range(8):
        found[i, LENGTHS[i] - 1] += SCORES[i]
    return found


def scores(beta=0.0):
    return [sum(rewards(beta)[i, t] for t in range(LENGTHS[i])) for i in range(8)]


def gkd(beta=0.5):
    """Of two tokens, the sampled one and another, which have all the probability."""

    def kl(p, q):
        return p * log(p / q) + (1 - p) * log((1 - p) / (1 - q))

    def value(i, t):
        q, p = exp(NEW[i, t]), exp(TEACHER[i, t])
        m = beta * p + (1 - beta) * q
        if beta in (0, 1):
            return kl(p, q) if beta == 0 else kl(q, p)
        return beta * kl(p, m) + (1 - beta) * kl(q, m)

    return mean(value(i, t) for i, t in tokens())


VOCABULARY = {  # whose losses are of whole distributions, which no row of a file has
    "gkd": (gkd(), {}),
    "gkd, uneven": (gkd(0.1), {"beta": 0.1}),
    "gkd, forward": (gkd(0.0), {"beta": 0.0}),
    "gkd, the likeliest": (gkd(), {"top_k": 1}),
    "sdft": (gkd(1.0), {}),
}
CASES = {
    "prime, discounted": {"gamma": 0.9},
    "distill": {"gamma": 0.5, "reward_weight": 0.1},
    "kl_cov": {"share": 0.2, "beta": 0.7},
    "clip_cov": {"share": 1.0, "low": 0.2, "high": 1.5},
    "dppo": {"cap": 1.5},
    "dppo, kl": {"cap": 1.5, "divergence": "kl", "low": 0.05, "high": 0.05},
    "topr": {"pivot": 0.4},
    "grpo, dual clip": {"clip_dual": 3.0},
    "grpo, k1 weighted": {"kl_estimator": "k1", "kl_weighted": True},
    "grpo, k2": {"kl_estimator": "k2"},
    "ppo, beside the group's": {"group_weight": 0.5, "group_size": G},
    "dapo, by group": {"aggregation": "group_token_mean"},
    "a2c, two steps": {"n_steps": 2, "gamma": 0.9},
    "dr_grpo": {"length_tokens": T},
}
for simple in NAMES:
    if load_algorithm(simple).examples is None and simple not in ("gkd", "sdft", *CASES):
        CASES[simple] = {}


# --------------------------------------------------------------------------------- ours


def tensor(values):
    return torch.tensor(np.asarray(values), dtype=torch.float64)


def on_tokens(found):
    whole = torch.zeros(8, T, dtype=torch.float64)
    for place, value in found.items():
        whole[place] = value
    return whole


def known_of_groups(beta):
    """The inputs of `advantages`, with a penalty of this weight in the reward."""
    steps = {(i, MIDDLE[i] - 1): PARTS[i, 0] for i in range(8)}
    steps |= {(i, LENGTHS[i] - 1): SCORES[i] for i in range(8)}
    mask = torch.arange(T)[None] < torch.tensor(LENGTHS)[:, None]
    at = [sorted({0, MIDDLE[i], LENGTHS[i]}) for i in range(8)]
    values = [[VALUES[i, 0], VALUES[i, 1], SCORES[i]] for i in range(8)]
    values = [v if len(b) == 3 else [v[0], v[2], v[2]] for v, b in zip(values, at, strict=True)]
    return {
        "mask": mask,
        "credited": mask,
        "scored": torch.ones(2, G, dtype=torch.bool),
        "scores": tensor(scores(beta)).view(2, G),
        "rewards": on_tokens(rewards(beta)),
        "values": tensor(VALUES),
        "behaviour_logprobs": tensor(OLD),
        "teacher_logprobs": tensor(TEACHER),
        "implicit_rewards": tensor(IMPLICIT),
        "bootstrap": tensor(AFTER),
        "lengths_tokens": torch.tensor(LENGTHS).view(2, G),
        "minibatch": torch.zeros(2, G, dtype=torch.long),
        "baseline": mean(SCORES),
        "score_parts": tensor(PARTS).view(2, G, 3),
        "prefix_values": tensor(values),
        "boundaries": torch.tensor([b if len(b) == 3 else [*b, b[-1]] for b in at]),
        "step_rewards": on_tokens(steps).view(2, G, T),
        "step_ends": (on_tokens(dict.fromkeys(steps, 1.0)) > 0).view(2, G, T),
    }


def of_two(logprobs):
    """Log-probabilities of a sampled token and of the only other one."""
    one = torch.as_tensor(logprobs)
    return torch.stack([one, torch.log1p(-one.exp())], dim=-1)


def algorithm_of(case: str) -> Algorithm:
    return load_algorithm(case.split(",")[0], **CASES[case])


def loss_with(made: Algorithm, new: np.ndarray = NEW) -> tuple[torch.Tensor, torch.Tensor]:
    """The class's loss of one update, and the log-probabilities that carry its gradient."""
    in_reward = made.kl is not None and made.kl.place == "reward"
    known = known_of_groups(made.kl.coefficient if in_reward else 0.0)
    mask = known["mask"]
    if made.forks == "greedy":
        ends = [[GREEDY[i // G], SCORES[i]] for i in range(8)]
        known |= {
            "prefix_values": tensor(ends),
            "boundaries": torch.tensor([[0, length] for length in LENGTHS]),
        }
    found = made.advantages(Inputs(made, known))
    A = found[0] if isinstance(found, tuple) else found
    A = A.reshape(8, 1) * mask if A.numel() == 8 else A.reshape(8, T)
    logprobs = tensor(new).requires_grad_()
    log_r = log_ratio(logprobs, tensor(OLD), mask)
    given = {
        "logprobs": logprobs.detach(),
        "old_logprobs": tensor(OLD),
        "advantages": A,
        "mask": mask,
    }
    generator = torch.Generator().manual_seed(0)
    given["selected"] = made.select(Inputs(made, given | {"generator": generator}))
    given |= {"logprobs": logprobs, "log_ratio": log_r, "ratio": log_r.exp()}
    if "divergence" in made.reads:
        divergence = made.divergence(of_two(logprobs.where(mask, tensor(-1.0))), of_two(TEACHER))
        given["divergence"] = zero_masked(divergence, mask)
    losses = made.loss(Inputs(made, given | {"ref_logprobs": tensor(REF)}))
    losses = losses.losses if isinstance(losses, Losses) else losses
    if made.kl is not None and not in_reward:
        before = tensor(OLD) if made.kl.weighted else None
        kind = made.kl.estimator
        penalty = kl_loss(logprobs, tensor(REF), mask, estimator=kind, behaviour_logprobs=before)
        losses = losses + made.kl.coefficient * penalty
    group = torch.arange(8) // G
    whole, length = aggregation.denominators(mask, group), made.length_tokens
    rule = {"rule": made.aggregation, "length_tokens": length, "max_tokens": T, "group": group}
    return aggregation.aggregate(losses, mask, whole, **rule), logprobs


def selected_by(made: Algorithm) -> np.ndarray:
    """The tokens that the covariance of log-probability and advantage picks, by the definition of arXiv:2505.22617."""
    rows = [row(made, i, NEW, SELECTED) for i in range(8)]
    A = [own[0] for own in advantages(rows, Setting(made.name, numbers_of(made)))]
    places = tokens()
    mean_p, mean_a = mean(NEW[place] for place in places), mean(A[i] for i, _ in places)
    cov = {(i, t): (NEW[i, t] - mean_p) * (A[i] - mean_a) for i, t in places}
    if made.name == "kl_cov":
        picked = sorted(places, key=cov.get)[-int(made.share * len(places)) :]
    else:  # all that lie between the bounds and are not clipped, as the share is 1
        picked = [
            (i, t)
            for i, t in places
            if made.low < cov[i, t] < made.high
            and not (A[i] > 0 and exp(NEW[i, t] - OLD[i, t]) > 2)
        ]
    found = SELECTED.copy()
    for place in picked:
        found[place] = True
    assert 0 < found.sum() < 30
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_papers_loss_and_its_gradient_are_the_judges(case: str):
    """To rounding, at log ratios of about 0.6, where clips act; stop-gradients too."""
    made = algorithm_of(case)
    loss, logprobs = loss_with(made)
    loss.backward()
    chosen = selected_by(made) if "selected" in made.reads else SELECTED
    ours = judged(made, selected=chosen)
    assert loss.item() == pytest.approx(ours.loss, rel=1e-9)
    for i, weights in enumerate(ours.weights):
        assert logprobs.grad[i, : LENGTHS[i]].tolist() == pytest.approx(weights.tolist(), abs=1e-12)


@pytest.mark.parametrize(
    "case", ["grpo", "gspo", "gmpo", "sapo", "dro", "ppo_kl", "ppo_completions", "rpg"]
)
def test_the_judges_slopes_are_those_of_its_loss(case: str):
    """By central differences, where a loss has no stop-gradient: torch is not the only witness."""
    made = algorithm_of(case)
    ours, step = judged(made), 1e-6
    for i, t in tokens():
        near = []
        for sign in (1, -1):
            moved = NEW.copy()
            moved[i, t] += sign * step
            near.append(judged(made, moved).loss)
        assert ours.weights[i][t] == pytest.approx((near[0] - near[1]) / (2 * step), abs=1e-7)


@pytest.mark.parametrize("case", VOCABULARY)
def test_a_divergence_of_distributions_is_that_of_two_outcomes(case: str):
    """By hand over a vocabulary of two."""
    wanted, numbers = VOCABULARY[case]
    loss, _ = loss_with(load_algorithm(case.split(",")[0], **numbers))
    assert loss.item() == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_what_is_masked_changes_nothing(case: str):
    """Not even as NaN, in the loss and in its gradient."""
    other = NEW.copy()
    for i, length in enumerate(LENGTHS):
        other[i, length:] = np.nan
    made = algorithm_of(case)
    (loss, before), (again, after) = loss_with(made), loss_with(made, other)
    loss.backward()
    again.backward()
    assert again.item() == loss.item()
    assert torch.equal(before.grad, after.grad)


def test_gpg_makes_up_for_groups_of_equal_scores():
    """Half of the completions are in a group of equal scores: the others count twice (eq. 7)."""
    made = load_algorithm("gpg")
    known = {"scores": tensor([[1.0, 0.0], [1.0, 1.0]]), "scored": torch.ones(2, 2).bool()}
    found = made.advantages(Inputs(made, known))
    assert found.tolist() == [[1.0, -1.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0]),
        ([1.0, 1.0, 0.0], [0.0, 0.0, 0.0]),
        ([0.2, 0.9, 0.5], [0.0, pytest.approx(0.4), 0.0]),
    ],
)
def test_only_a_best_completion_without_a_rival_raises_pass_at_k(row, wanted):
    """Without it the best would be the second; one UNSCORED row, whatever its score, is no rival."""
    made = load_algorithm("pass_k")
    known = {
        "scores": tensor([[*row, 9.0]]),
        "scored": torch.tensor([[True, True, True, False]]),
    }
    assert made.advantages(Inputs(made, known)).tolist() == [[*wanted, 0.0]]


# ----------------------------------------------------------------------------- pairs, labels, steps


def gain(i, power=1.0):
    return power * sum(NEW[i, t] - REF[i, t] for t in range(LENGTHS[i]))


def judged_examples(made: Algorithm) -> list[float]:
    """Rows 0 to 3 are chosen, rows 4 to 7 rejected."""
    numbers, name = asdict(made), made.name
    if name in ("rft", "sft"):
        return [-NEW[i, t] if t < LENGTHS[i] else 0.0 for i in range(8) for t in range(T)]
    said = list(VALUES[:, 0])
    if "ref_logprobs" in made.reads:
        said = [gain(i, 1 / LENGTHS[i] if made.length == "mean" else 1.0) for i in range(8)]
    if made.examples == "pairs":
        margin = 0.2 if name == "reward_model" else 0.0
        both = zip(said[:G], said[G:], strict=True)
        return [float(examples.pair_loss(name, numbers, *pair, margin).value) for pair in both]
    steps = made.examples == "steps"
    right = [3 * s if steps else float(s > 0.4) for s in SCORES]
    known = {"counts": 3.0 if steps else 1.0, "point": 0.3}
    pairs = zip(said, right, strict=True)
    return [float(examples.label_loss(name, numbers, *pair, **known).value) for pair in pairs]


PREFERENCES = {name: {} for name in NAMES if load_algorithm(name).examples is not None}
PREFERENCES |= {
    "reward_model": {"centring": 0.01},
    "dpo, conservative": {"smoothing": 0.1},
    "dpo, robust": {"smoothing": 0.1, "reading": "robust"},
}


@pytest.mark.parametrize("case", PREFERENCES)
def test_a_loss_on_examples_is_the_judges(case: str):
    """Of pairs, labels, right completions and steps."""
    made = load_algorithm(case.split(",")[0], **PREFERENCES[case])
    mask = torch.arange(T)[None] < torch.tensor(LENGTHS)[:, None]
    h = tensor(VALUES[:, 0])
    if "ref_logprobs" in made.reads:
        h = gains(tensor(NEW), tensor(REF), mask, length=made.length)
    right = tensor(SCORES)
    known = {
        "logprobs": tensor(NEW),
        "mask": mask,
        "gain": h,
        "chosen": h[:G],
        "rejected": h[G:],
        "margin": torch.full((G,), 0.2, dtype=torch.float64),
        "reference_point": torch.tensor(0.3, dtype=torch.float64),
        "logits": tensor(VALUES[:, 0]),
        "rewards": tensor(VALUES[:, 0]),
        "counts": torch.full((8,), 3.0, dtype=torch.float64),
        "right": 3 * right if made.examples == "steps" else right > 0.4,
    }
    found = made.loss(Inputs(made, known))
    assert found.flatten().tolist() == pytest.approx(judged_examples(made), rel=1e-9)


def test_no_paper_is_without_a_judge():
    """What anyone recomputes a step from."""
    names = [case.split(",")[0] for case in (*CASES, *VOCABULARY, *PREFERENCES)]
    assert set(names) == set(NAMES)


@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in PREFERENCES])
def test_a_group_with_one_score_has_finite_advantages(name, value):
    """As where all are wrong and a wrong answer costs 1: MaxRL divided 0 by 0."""
    made = load_algorithm(name)
    known = known_of_groups(0.0)
    known["scores"] = torch.full_like(known["scores"], value)
    if made.forks == "greedy":
        known |= {
            "prefix_values": tensor([[value, value]] * 8),
            "boundaries": torch.tensor([[0, length] for length in LENGTHS]),
        }
    found = made.advantages(Inputs(made, known))
    A = found[0] if isinstance(found, tuple) else found
    assert A.isfinite().all()

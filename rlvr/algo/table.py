"""One table from the name of every algorithm to its functions, its preset, where its equations stand, and a test.

`rlvr algorithms` prints it, and docs/algorithms.md holds it.  Needs no torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ROWS", "TableRow", "markdown"]


@dataclass(frozen=True, slots=True)
class TableRow:
    """An algorithm, or a part that papers name.

    Attributes:
        name: as the paper has it.
        functions: of `rlvr.algo`, as "module.function".
        preset: for `rlvr train --algorithm`; empty for what is a setting of any preset, or a function alone.
        equation: paper and equation.
        test: one that holds it to known numbers, "file::function" below tests/.
        how: the setting that reaches it, or why it is only a function; empty with a preset.
    """

    name: str
    functions: tuple[str, ...]
    preset: str
    equation: str
    test: str
    how: str = ""


def _row(
    name: str, functions: str, preset: str, equation: str, test: str, how: str = ""
) -> TableRow:
    return TableRow(name, tuple(functions.split()), preset, equation, test, how)


_OPTIMA: Final = "algo/test_known_optima.py::"
_OBJECTIVES: Final = "algo/test_objectives.py::"
_CREDIT: Final = "train/test_credit.py::"
_CRITIC: Final = "train/test_critic.py::"
_PAIRS: Final = "algo/test_preferences.py::"

ROWS: Final[tuple[TableRow, ...]] = (
    _row(
        "REINFORCE",
        "advantages.reinforce_advantages objectives.reinforce",
        "reinforce",
        "Williams 1992, sec. 4; baseline: sec. 8",
        _OPTIMA + "test_the_bandit_with_a_kl_penalty_comes_to_its_optimum",
    ),
    _row(
        "RLOO",
        "advantages.rloo_advantages objectives.reinforce",
        "rloo",
        "arXiv:2402.14740, 2.3",
        _CREDIT + "test_a_penalty_in_the_reward_is_taken_from_the_score_before_it_is_judged",
    ),
    _row(
        "REINFORCE++",
        "returns.discounted_returns returns.whiten objectives.clipped",
        "reinforce_pp",
        "arXiv:2501.03262",
        _CREDIT + "test_whitened_returns_have_mean_0_and_std_1_over_tokens",
    ),
    _row(
        "REINFORCE++-baseline",
        "advantages.global_advantages",
        "",
        "arXiv:2501.03262",
        _CREDIT + "test_global_advantages_count_a_completion_once_per_token",
        "advantage='global_advantages', group_baseline=True",
    ),
    _row(
        "ReMax",
        "advantages.reinforce_advantages",
        "",
        "arXiv:2310.10505, eq. 5",
        "algo/test_advantages.py::test_a_constant_a_batch_and_a_prompt_baseline",
        "a function: the greedy completion of each prompt would have to be sampled beside the group; RLOO needs none",
    ),
    _row(
        "A2C",
        "returns.n_step_advantages objectives.reinforce terms.value_loss terms.entropy_bonus",
        "a2c",
        "arXiv:1602.01783, sec. 4",
        _OPTIMA + "test_the_chains_values_agree",
    ),
    _row(
        "PPO, clip",
        "returns.gae objectives.clipped terms.value_loss returns.whiten",
        "ppo",
        "arXiv:1707.06347, eq. 7, 9, 11",
        _OPTIMA + "test_the_bandit_with_a_kl_penalty_comes_to_its_optimum",
    ),
    _row(
        "PPO, adaptive KL",
        "objectives.ppo_kl control.next_beta",
        "ppo_kl",
        "arXiv:1707.06347, eq. 8, sec. 4",
        _CRITIC + "test_coefficients_follow_what_is_measured",
    ),
    _row(
        "Ziegler's adaptive KL",
        "control.ziegler_beta kl.penalised",
        "",
        "arXiv:1909.08593, 2.2",
        "algo/test_control.py::test_zieglers_rule_by_hand",
        'kl=Kl(…, rule="ziegler", target=6), in ppo and every preset with a KL penalty',
    ),
    _row(
        "TRPO",
        "objectives.surrogate trust_region.trust_region_step trust_region.conjugate_gradient "
        "trust_region.fisher_product trust_region.full_kl",
        "trpo",
        "arXiv:1502.05477, eq. 14, app. C",
        "train/test_trust_region.py::test_a_step_is_the_natural_gradient_and_stays_in_the_region",
        "for study: a step costs about 25 gradients; one process, float32",
    ),
    _row(
        "TRPO, Lagrangian form",
        "objectives.ppo_kl trust_region.dual_ascent",
        "",
        "arXiv:1502.05477, eq. 14",
        "train/test_trust_region.py::test_the_multiplier_rises_above_the_target_and_falls_to_0_below",
        'trust=Trust(rule="dual", target=0.01) in ppo_kl; kl=Kl(…, rule="dual", target=…) for the reference',
    ),
    _row(
        "GAE, λ-returns",
        "returns.gae",
        "ppo",
        "arXiv:1506.02438, eq. 16",
        _OPTIMA + "test_the_chains_values_agree",
    ),
    _row(
        "TD(0), n-step and truncated returns",
        "returns.n_step_advantages",
        "a2c",
        "arXiv:1602.01783, sec. 4",
        _OPTIMA + "test_the_chains_values_agree",
        "n_steps=1 is TD(0), n_steps=N looks ahead N tokens",
    ),
    _row(
        "GRPO, outcome",
        "advantages.group_advantages objectives.clipped aggregation.sequence_mean",
        "grpo",
        "arXiv:2402.03300, eq. 3",
        _CREDIT + "test_every_token_has_its_completions_advantage",
    ),
    _row(
        "GRPO, process",
        "returns.process_advantages",
        "",
        "arXiv:2402.03300, 4.1.3",
        _CREDIT + "test_turns_with_rewards_of_their_own_are_judged_each",
        "advantage='process_advantages', in environments whose turns have rewards",
    ),
    _row(
        "Dr. GRPO",
        "advantages.group_advantages aggregation.constant",
        "dr_grpo",
        "arXiv:2503.20783, 3.2",
        _CREDIT + "test_every_token_has_its_completions_advantage",
    ),
    _row(
        "DAPO",
        "advantages.group_advantages objectives.clipped aggregation.token_mean",
        "dapo",
        "arXiv:2503.14476, eq. 8, 11–13",
        "train/test_learner.py::test_clip_higher_lets_an_unlikely_token_rise_further",
    ),
    _row(
        "ProRL",
        "advantages.group_advantages objectives.clipped kl.kl_loss",
        "prorl",
        "arXiv:2505.24864, 2.3",
        "train/test_loop.py::test_prorl_resets_when_validation_stalls",
    ),
    _row(
        "Magistral",
        "advantages.magistral_advantages objectives.clipped",
        "magistral",
        "arXiv:2506.10910, 2.1",
        _CREDIT + "test_magistral_normalises_each_mini_batch",
    ),
    _row(
        "VinePPO",
        "returns.monte_carlo_advantages objectives.clipped",
        "vineppo",
        "arXiv:2410.01679, sec. 4",
        _CREDIT + "test_a_step_is_worth_what_it_adds_to_the_value",
    ),
    _row(
        "GSPO",
        "objectives.gspo aggregation.sequence_mean",
        "gspo",
        "arXiv:2507.18071, eq. 5–7",
        _OBJECTIVES + "test_only_the_policy_learns",
    ),
    _row(
        "PPO over completions",
        "objectives.sequence_clipped aggregation.sequence_mean",
        "",
        "arXiv:1707.06347, eq. 7",
        _OBJECTIVES + "test_the_product_of_ratios_by_hand",
        "objective='sequence_clipped' in gspo or another preset with a clip: the product of the ratios, for study",
    ),
    _row(
        "CISPO",
        "objectives.cispo aggregation.token_mean",
        "cispo",
        "arXiv:2506.13585, eq. 4–5",
        _OBJECTIVES + "test_cispo_bounds_the_weight_and_never_the_gradient_away",
    ),
    _row(
        "SAPO",
        "objectives.sapo",
        "sapo",
        "arXiv:2511.20347, eq. 5–6",
        _OBJECTIVES + "test_sapo_by_hand",
    ),
    _row(
        "DPO, cDPO, robust DPO",
        "preferences.dpo",
        "dpo",
        "arXiv:2305.18290, eq. 7",
        _PAIRS + "test_the_minimiser_is_the_one_of_the_paper",
    ),
    _row(
        "IPO",
        "preferences.ipo",
        "ipo",
        "arXiv:2310.12036, eq. 17",
        _PAIRS + "test_the_minimiser_is_the_one_of_the_paper",
    ),
    _row(
        "KTO",
        "preferences.kto preferences.kto_reference_point",
        "kto",
        "arXiv:2402.01306, eq. 8",
        _PAIRS + "test_kto_by_hand",
    ),
    _row(
        "SLiC, hinge",
        "preferences.hinge",
        "",
        "arXiv:2309.06657, 3.2",
        _PAIRS + "test_a_pair_by_hand",
        "`dpo` with preference_loss hinge",
    ),
    _row(
        "RFT, best of n",
        "preferences.negative_log_likelihood",
        "rft",
        "arXiv:2308.01825, 3.2",
        _PAIRS + "test_a_token_of_fine_tuning_loses_its_negative_log_probability",
    ),
    _row(
        "Bradley–Terry reward model",
        "preferences.bradley_terry",
        "reward_model",
        "arXiv:2203.02155, eq. 1",
        _PAIRS + "test_the_minimiser_is_the_one_of_the_paper",
    ),
    _row(
        "Process reward model",
        "preferences.step_label_loss",
        "process_reward_model",
        "arXiv:2312.08935, eq. 4",
        _PAIRS + "test_the_loss_of_step_labels_counts",
    ),
    _row(
        "Dual clip",
        "objectives.clipped",
        "",
        "arXiv:1912.09729",
        _OBJECTIVES + "test_the_dual_clip_by_hand",
        "clip=Clip(…, dual=3)",
    ),
    _row(
        "Top-entropy tokens",
        "terms.top_entropy",
        "",
        "arXiv:2506.01939, eq. 5",
        _CRITIC + "test_only_tokens_of_high_entropy_have_a_gradient",
        "entropy_share=0.2, in every preset",
    ),
    _row(
        "Importance-weighted KL",
        "kl.kl_loss",
        "",
        "arXiv:2512.02556, 3.1",
        _OPTIMA + "test_every_estimators_bias_on_a_token_bandit",
        "kl=Kl(…, weighted=True)",
    ),
    _row(
        "Reference mixing (TR-DPO)",
        "",
        "",
        "arXiv:2404.09656, eq. 1",
        _CRITIC + "test_the_reference_is_mixed",
        "mixing=Mixing(every_steps, share), with a KL penalty",
    ),
    _row(
        "Adaptive entropy coefficient",
        "control.next_entropy_coefficient",
        "",
        "arXiv:2505.22312, sec. 4",
        "algo/test_control.py::test_the_entropy_coefficient_rises_while_the_entropy_is_low",
        "entropy_target=EntropyTarget(nats)",
    ),
    _row(
        "RePO, replay of earlier groups",
        "",
        "",
        "arXiv:2506.09340, 3.2",
        "train/test_replay.py::test_a_step_gets_groups_of_earlier_steps_and_none_that_is_too_old",
        "replay=Replay(groups, max_versions), in presets with a ratio",
    ),
    _row(
        "PODS, down-sampling",
        "subsets.max_variance subsets.random_subset",
        "",
        "arXiv:2504.13818, 3.2",
        "algo/test_subsets.py::test_the_chosen_scores_vary_most",
        "subset=Subset(size, rule)",
    ),
    _row(
        "Truncated and masked importance sampling",
        "corrections.truncated corrections.masked",
        "",
        "Yao et al. 2025; arXiv:2510.18855, 2.3.2",
        "train/test_learner.py::test_kl_and_correction_in_a_loss_by_hand",
        "correction=Correction(kind, level)",
    ),
)
"""Every algorithm, in the order of the table."""


def markdown(rows: tuple[TableRow, ...] = ROWS) -> str:
    """The rows as a Markdown table.

    Args:
        rows: of the table.
    """
    lines = [
        "| algorithm | preset, or how it is reached | functions | equation | test |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        reached = " · ".join(part for part in (row.preset and f"`{row.preset}`", row.how) if part)
        functions = ", ".join(f"`{one}`" for one in row.functions) or "the learner"
        lines.append(
            f"| {row.name} | {reached} | {functions} | {row.equation} | `tests/{row.test}` |"
        )
    return "\n".join(lines) + "\n"

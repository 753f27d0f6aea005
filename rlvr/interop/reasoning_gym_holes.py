"""Families of reasoning-gym with holes, as benchmarks/reasoning_gym_families.py --write found them.

Measured with reasoning-gym 0.1.25.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["HOLES", "PARTIAL_HOLES"]

HOLES: Final[Mapping[str, tuple[str, ...]]] = {
    "advanced_geometry": ("a list of candidates gets full marks",),
    "binary_matrix": ("its scorer runs the answer as Python",),
    "boxnet": ("it has no reference to check the scorer with",),
    "codeio": ("its puzzles depend on Python's hash seed or on chance",),
    "coin_flip": ("junk gets full marks",),
    "composite": ("it cannot be tried: UsageError",),
    "countdown": ("its scorer runs the answer as Python",),
    "fraction_simplification": ("'right or maybe wrong' gets full marks", "a list of candidates gets full marks"),
    "game_of_life_halting": (
        "junk gets full marks",
        "the question itself gets full marks",
        "another puzzle's answer gets full marks",
        "'right or maybe wrong' gets full marks",
        "a list of candidates gets full marks",
    ),
    "graph_color": ("it has no reference to check the scorer with",),
    "gsm_symbolic": (
        "junk gets full marks",
        "'right or maybe wrong' gets full marks",
        "a list of candidates gets full marks",
    ),
    "intermediate_integration": ("it cannot be tried: it died, or took more than 60 s",),
    "isomorphic_strings": ("its puzzles depend on Python's hash seed or on chance",),
    "jugs": ("another puzzle's answer gets full marks",),
    "knight_swap": ("its puzzles depend on Python's hash seed or on chance",),
    "letter_jumble": ("'right or maybe wrong' gets full marks",),
    "list_functions": ("its puzzles depend on Python's hash seed or on chance",),
    "n_queens": ("its scorer runs the answer as Python",),
    "polynomial_multiplication": (
        "its scorer runs the answer as Python",
        "its puzzles depend on Python's hash seed or on chance",
        "'right or maybe wrong' gets full marks",
    ),
    "propositional_logic": ("it has no reference to check the scorer with",),
    "puzzle24": ("its scorer runs the answer as Python", "another puzzle's answer gets full marks"),
    "ransom_note": ("its puzzles depend on Python's hash seed or on chance",),
    "rubiks_cube": ("it has no reference to check the scorer with",),
    "rush_hour": ("it has no reference to check the scorer with",),
    "simple_integration": ("its scorer runs the answer as Python", "'right or maybe wrong' gets full marks"),
    "sokoban": ("'right or maybe wrong' gets full marks", "a list of candidates gets full marks"),
    "spiral_matrix": ("its scorer runs the answer as Python",),
    "string_insertion": ("its scorer runs the answer as Python",),
    "time_intervals": ("'right or maybe wrong' gets full marks", "a list of candidates gets full marks"),
    "word_ladder": ("its puzzles depend on Python's hash seed or on chance",),
    "word_sorting": ("a list of candidates gets full marks",),
}
"""What a policy would find although full marks are needed."""

PARTIAL_HOLES: Final[Mapping[str, tuple[str, ...]]] = {
    "acre": ("junk gets 0.50", "'right or maybe wrong' gets 0.33", "a list of candidates gets 0.20"),
    "aiw": ("'right or maybe wrong' gets 0.17",),
    "arc_1d": ("'right or maybe wrong' gets 0.63", "a list of candidates gets 0.18"),
    "base_conversion": ("'right or maybe wrong' gets 0.40", "a list of candidates gets 0.11"),
    "basic_arithmetic": ("junk gets 0.50", "'right or maybe wrong' gets 0.71", "a list of candidates gets 0.24"),
    "bf": ("'right or maybe wrong' gets 0.36",),
    "binary_alternation": ("'right or maybe wrong' gets 0.29",),
    "caesar_cipher": ("'right or maybe wrong' gets 0.71", "a list of candidates gets 0.18"),
    "chain_sum": ("'right or maybe wrong' gets 0.50", "a list of candidates gets 0.14"),
    "codeio": ("'right or maybe wrong' gets 0.97", "a list of candidates gets 0.33"),
    "count_bits": ("'right or maybe wrong' gets 0.25",),
    "count_primes": ("'right or maybe wrong' gets 0.38",),
    "course_schedule": ("'right or maybe wrong' gets 0.38", "a list of candidates gets 0.22"),
    "figlet_font": (
        "junk gets 0.10",
        "the question itself gets 0.20",
        "'right or maybe wrong' gets 0.70",
        "a list of candidates gets 0.70",
    ),
    "futoshiki": ("'right or maybe wrong' gets 0.62", "a list of candidates gets 0.20"),
    "gcd": ("junk gets 0.50", "'right or maybe wrong' gets 0.29"),
    "isomorphic_strings": ("'right or maybe wrong' gets 0.38", "a list of candidates gets 0.22"),
    "largest_island": ("'right or maybe wrong' gets 0.29",),
    "lcm": ("'right or maybe wrong' gets 0.36",),
    "leg_counting": ("'right or maybe wrong' gets 0.33",),
    "letter_counting": ("junk gets 0.50", "'right or maybe wrong' gets 0.17", "a list of candidates gets 0.10"),
    "letter_jumble": ("junk gets 0.33", "a list of candidates gets 0.95"),
    "list_functions": ("'right or maybe wrong' gets 0.79", "a list of candidates gets 0.24"),
    "mahjong_puzzle": ("'right or maybe wrong' gets 0.36", "a list of candidates gets 0.19"),
    "manipulate_matrix": ("'right or maybe wrong' gets 0.93", "a list of candidates gets 0.32"),
    "maze": ("'right or maybe wrong' gets 0.29",),
    "mini_sudoku": ("'right or maybe wrong' gets 0.34",),
    "modulo_grid": ("'right or maybe wrong' gets 0.50", "a list of candidates gets 0.12"),
    "number_filtering": ("'right or maybe wrong' gets 0.66", "a list of candidates gets 0.22"),
    "number_sequence": (
        "the question itself gets 0.12",
        "'right or maybe wrong' gets 0.36",
        "a list of candidates gets 0.13",
    ),
    "polynomial_equations": ("junk gets 0.94", "'right or maybe wrong' gets 0.50"),
    "products": ("'right or maybe wrong' gets 0.57", "a list of candidates gets 0.18"),
    "propositional_logic": ("junk gets 0.25",),
    "quantum_lock": ("'right or maybe wrong' gets 0.50",),
    "ransom_note": ("'right or maybe wrong' gets 0.38", "a list of candidates gets 0.22"),
    "rectangle_count": ("junk gets 0.64",),
    "rotate_matrix": ("'right or maybe wrong' gets 0.73", "a list of candidates gets 0.21"),
    "rotten_oranges": ("'right or maybe wrong' gets 0.29", "a list of candidates gets 0.10"),
    "simple_equations": ("'right or maybe wrong' gets 0.29",),
    "simple_geometry": ("'right or maybe wrong' gets 0.33",),
    "spell_backward": (
        "junk gets 0.17",
        "the question itself gets 0.14",
        "'right or maybe wrong' gets 1.00",
        "a list of candidates gets 1.00",
    ),
    "string_manipulation": ("'right or maybe wrong' gets 0.62", "a list of candidates gets 0.14"),
    "string_splitting": ("'right or maybe wrong' gets 0.42", "a list of candidates gets 0.11"),
    "string_synthesis": ("'right or maybe wrong' gets 0.45", "a list of candidates gets 0.11"),
    "sudoku": ("'right or maybe wrong' gets 0.41", "a list of candidates gets 0.10"),
    "syllogism": ("junk gets 0.50", "'right or maybe wrong' gets 0.33", "a list of candidates gets 0.27"),
    "time_intervals": ("junk gets 0.27",),
    "tsumego": ("'right or maybe wrong' gets 0.33",),
    "word_sequence_reversal": ("'right or maybe wrong' gets 0.54", "a list of candidates gets 0.16"),
    "word_sorting": ("the question itself gets 0.14", "'right or maybe wrong' gets 0.90"),
}
"""What partial credit pays for besides, as a share of full marks."""

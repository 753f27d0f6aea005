"""What the service counts beside what every application does."""

from __future__ import annotations

from rlvr.http.metrics import Table

__all__ = ["COUNTERS", "GAUGES"]

COUNTERS: Table = {
    "rlvr_scores_total": (
        "Completions that were scored, by outcome; unscored ones are failures of the service.",
        ("env", "outcome"),
    ),
    "rlvr_rewards_total": ("Completions that the reward model has scored.", ()),
    "rlvr_rows_refused_total": (
        "Rows that could not be used and got an error instead of a score.",
        ("env",),
    ),
    "rlvr_repeated_total": (
        "Requests whose id was known: answered without scoring again.",
        ("env",),
    ),
    "rlvr_cancelled_total": ("Requests whose caller disconnected before the response.", ("env",)),
    "rlvr_worker_starts_total": (
        "Worker processes started, warm spares and replacements included.",
        ("env",),
    ),
    "rlvr_worker_losses_total": (
        "Worker processes that died or were killed before their time.",
        ("env",),
    ),
}
GAUGES: Table = {
    "rlvr_queue_rows": ("Rows that wait or are being scored.", ("env",)),
    "rlvr_queue_limit_rows": ("Rows beyond which requests get 429.", ("env",)),
    "rlvr_workers": ("Worker processes at work at once.", ("env",)),
    "rlvr_remembered_bytes": ("Responses kept for requests that are sent again.", ()),
}

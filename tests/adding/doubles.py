"""An environment with a tool: say twice a number."""

import rlvr


@rlvr.register("doubles-v1")
class Doubles(rlvr.Environment):
    """Double numbers; a tool knows how."""

    def task(self, index):
        n = rlvr.seeded(self.id, self.split, index).randint(100, 10**6)
        return rlvr.Task(f"{self.id}/{self.split}/{index}", f"Twice {n}? Digits alone.", str(2 * n))

    @rlvr.tool
    def double(self, state, number: int) -> str:
        """Double a number.

        Args:
            number: which one.
        """
        return str(2 * number)

    def verify(self, task, episode):
        right = (episode.answer or "").strip() == task.reference
        return rlvr.Verdict("correct" if right else "wrong", why="same" if right else "other")

    def example_episode(self, task):
        return [rlvr.Ask("double", {"number": int(task.reference) // 2}), task.reference]

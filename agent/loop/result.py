"""What an episode came to, and which of its two verdicts counts."""

from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import EXIT_FASTER, EXIT_INFRASTRUCTURE, EXIT_NOT_FASTER
from agent.judging.reports import Verdict
from agent.trajectory.events import StopReason


@dataclass(frozen=True)
class EpisodeResult:
    """`best` and `final` are None where that subject does not exist or could not be judged.

    `judge_errors` says why it could not, and `judge_lacked_disk` whether a full disk is why. `cost_usd` is None where a
    price is unknown. `finished` is false for a run that was left to be resumed. `old_stop`: an earlier process recorded
    why the loop stopped, so that it says nothing about the disk or the server of today.
    """

    run_dir: Path
    reason: StopReason
    reward: int | None
    best: Verdict | None
    final: Verdict | None
    turns: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    wall_s: float
    detail: str = ""
    judge_errors: tuple[str, ...] = ()
    judge_lacked_disk: bool = False
    finished: bool = True
    old_stop: bool = field(default=False, compare=False)

    @property
    def verdict(self) -> Verdict | None:
        """The one that counts."""
        return better(self.best, self.final)

    @property
    def exit_code(self) -> int:
        """0 more than 5 % faster than eager at least, 1 not, 3 infrastructure kept it from being known."""
        if self.reward is not None:
            return EXIT_FASTER if self.reward >= 2 else EXIT_NOT_FASTER
        verdicts = (self.best, self.final)
        undecided = any(verdict is not None and verdict.verdict == "error" for verdict in verdicts)
        unknown = self.reason.infrastructure or undecided or bool(self.judge_errors)
        return EXIT_INFRASTRUCTURE if unknown else EXIT_NOT_FASTER


def better(best: Verdict | None, final: Verdict | None) -> Verdict | None:
    """The accepted one, then the higher reward, then the higher speed-up over its hardest rival; `best` on a tie."""
    known = [verdict for verdict in (best, final) if verdict is not None]
    return max(known, key=_rank, default=None)


def reward_of(reason: StopReason, best: Verdict | None, final: Verdict | None, *, judged: bool) -> int | None:
    """The episode's reward: an accepted submission counts whatever stopped the run.

    A rejected one counts only where the model had its say: not after infrastructure trouble, not when a person ended
    the run, not where a judgement failed (`judged` false).
    """
    verdict = better(best, final)
    if verdict is None or verdict.verdict == "accepted":
        return verdict.reward if verdict else None
    unknown = any(v is not None and v.verdict == "error" for v in (best, final))
    if unknown or not judged or reason.infrastructure or reason is StopReason.CANCELLED:
        return None
    return verdict.reward


def _rank(verdict: Verdict) -> tuple[bool, int, float]:
    ratios = [speedup.ratio for speedup in (verdict.speedup or {}).values()]
    return verdict.verdict == "accepted", verdict.reward or 0, min(ratios, default=0.0)

"""`grpo_judged` for verl: GRPO's advantage over the rollouts of a group whose reward is known.

verl's own estimators take the mean over a whole group. A rollout that infrastructure broke twice has no reward, only
the 0.0 that verl's tensors need in its place, and would move the others' baseline. Here it is in no mean and has no
advantage. verl registers what it is told to import: VERL_USE_EXTERNAL_MODULES=agent.environments.verl_advantage, and
algorithm.adv_estimator=grpo_judged.
"""

from typing import Any, Final

from agent.environments.extras import extra

_core: Any = extra("verl.trainer.ppo.core_algos", name="verl")

NAME: Final = "grpo_judged"


@_core.register_adv_est(NAME)  # type: ignore[untyped-decorator]
def grpo_judged(token_level_rewards: Any, response_mask: Any, index: Any, config: Any = None, **_: Any) -> Any:
    """Advantages and returns, shape (rollouts, response length), as `compute_grpo_outcome_advantage` gives them.

    A rollout counts where it has a token of the model's own: `KernelAgentLoop` masks those that were broken as a whole.
    """
    counts = response_mask.sum(dim=-1) > 0
    advantages = token_level_rewards.new_zeros(token_level_rewards.shape)
    if counts.any():
        known, _ = _core.compute_grpo_outcome_advantage(
            token_level_rewards=token_level_rewards[counts],
            response_mask=response_mask[counts],
            index=index[counts.cpu().numpy()],
            norm_adv_by_std_in_grpo=True if config is None else config.get("norm_adv_by_std_in_grpo", True),
        )
        advantages[counts] = known
    return advantages, advantages

"""Managed consumers: which pods get which settings of the agent, the webhook that adds them, and the rollout."""

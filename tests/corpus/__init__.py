"""Reward hacks and honest controls for the judge, and the command that runs them."""

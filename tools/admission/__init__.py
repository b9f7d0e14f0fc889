"""Examines many candidates for tasks in processes forked from one that has imported torch once."""

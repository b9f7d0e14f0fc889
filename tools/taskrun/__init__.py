"""Runs a task's model.py (never a submission) in a child process with limits, and says where it fails."""

"""Composes tasks from operators, deterministically from a seed; filters in a sandbox decide which ones stay."""

"""Asks tools/admit_task.py, in a sandbox, which texts can be tasks."""

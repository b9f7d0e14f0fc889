"""Parts of trace_task.py: from a module to its operators as data."""

"""Times of a suite's references: many prepared side by side, one timed at a time."""

"""Early feedback on a submission's text: Python by its syntax tree, C++ by its tokens. Telemetry, not proof."""

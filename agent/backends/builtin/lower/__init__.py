"""From torch's operators to the intermediate form."""

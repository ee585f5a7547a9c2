"""What a user sees: the default dependencies alone, and no variables of ours."""

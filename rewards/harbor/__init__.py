"""Harbor tasks: what their own verifiers said."""

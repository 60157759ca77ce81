"""Servers of one's own (vLLM, SGLang, `assay serve`): started, watched and ended."""

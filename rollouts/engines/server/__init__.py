"""Engines of token ids behind HTTP: vLLM, SGLang, and our own `assay serve`."""

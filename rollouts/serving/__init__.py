"""An engine behind HTTP, in the words of the OpenAI protocol (`assay serve`)."""

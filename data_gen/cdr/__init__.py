"""CDR-Bench tasks from raw corpora, by the benchmark's own construction. In the order of a build:

cli         the command: six stages, and what is said of them
work        the folder in which every stage leaves its files for the next one
documents   rows of corpora, their domains, what changes them; all documents by number
recipes     recipes mined or made up, where filters may stand, and what they do to texts
units       what a row is: a threshold, a plan, with a document an instance; splits
plan        thresholds, who is chosen for what, which units are worded
instruct    a recipe in words, style by style, and the words read back
outcome     the same as a description of its result
paraphrase  freer words from an endpoint
said        whether an operator did what its words say
rows        units executed, worded and proved: rows of the release, and tasks
merge       the files of a build, and what became of its documents

semantic    `assay tasks semantic`, with the formats of its data sets in semantic_sources
"""

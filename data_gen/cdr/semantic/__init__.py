"""The semantic extension (spec section 16): four public data sets as atomic and compositional rows.

`sources` reads the published formats into samples; `rows` makes benchmark rows of them; `cli` is
`assay tasks semantic`. The benchmark's own construction of these tracks is not
public: sources, groups, splits, formats and scoring are the published ones, the wording and the
mapping of labels to groups are ours.
"""

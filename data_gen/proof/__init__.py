"""Gold a second time, from the original files: readers and computations that share no code, no
library and no default with `assay.tables`, and so can disagree with it (docs/tables.md)."""

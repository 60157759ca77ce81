"""The one reader of tables: `assay.tables.load` (docs/tables.md)."""

"""The one reader of tables: `assay.tables.read` (docs/tables.md)."""

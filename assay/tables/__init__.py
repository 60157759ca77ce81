"""The one reader of tables: `rewards.tables.read` (docs/tables.md)."""

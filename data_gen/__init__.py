"""Build verified tasks and training sets from documents, tables and data lakes."""

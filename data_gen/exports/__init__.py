"""Our tasks in other tools' forms: `assay export`."""

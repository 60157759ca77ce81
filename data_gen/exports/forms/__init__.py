"""One file for each tool, copied beside the tasks by `assay export`; needs the tool and Assay."""

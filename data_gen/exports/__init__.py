"""Our tasks in other tools' forms: `assay export`.

cli writes them, Harbor's as directories with a scorer of their own; episodes writes the sets of the
other forms, and reads them again there; forms/ has one file for each tool, copied beside the tasks.
"""

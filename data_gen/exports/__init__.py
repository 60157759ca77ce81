"""Our tasks in other tools' forms: `assay export`.

cli writes them, harbor for directories with a scorer of their own; forms/ has one file for each
tool, copied beside the tasks, which runs tools of one's own through episodes.
"""

"""Environments over a lake, a folder of tables; and what every task over one says."""

LAKE = "lake"  # the key of `Task.files` that names the lake's folder
SYSTEM = (
    "You are an experienced data scientist. Answer the question from the files of a data lake. "
    "The files are in the folder data/. Do not assume that they are clean."
)

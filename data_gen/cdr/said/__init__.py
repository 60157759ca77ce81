"""What the words of every step promise, read apart from the operators.

An operator may do more or less than the sentence that asks for it. Here each sentence is taken by
its letter: a reading gives the text that the words lead to, or None where the words do not settle
it. A task is asked in the words that lead to its gold. A row whose gold no words lead to is no
training row.
"""

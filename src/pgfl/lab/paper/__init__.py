"""Section V and the theorems of the paper as experiments: figures, theorems, and a verdict on every claim."""

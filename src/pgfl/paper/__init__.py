"""Section V and the theorems of the paper as experiments: nine figures, three theorems, and a verdict on every claim."""

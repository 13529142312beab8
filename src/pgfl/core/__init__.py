"""The equations of the paper, the algorithms and roles built from them, and the federation they run on."""

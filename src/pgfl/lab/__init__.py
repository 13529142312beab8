"""The laboratory: the paper's reproduction and the privacy audit. Only the command line and the studio import it."""

"""Fig. 7: accuracy on pairs of digits against the round."""

from pgfl.lab.paper.figures import AccuracyCurves

FIGURE = AccuracyCurves(
    "fig7", "Accuracy on pairs of digits, with scheduling and privacy", "pairs",
    "inter-cluster learning improves accuracy on pairs", 0.0,
)  # fmt: skip

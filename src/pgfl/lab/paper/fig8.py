"""Fig. 8: accuracy on triplets of digits against the round."""

from pgfl.lab.paper.figures import AccuracyCurves

FIGURE = AccuracyCurves(
    "fig8", "Accuracy on triplets of digits, with scheduling and privacy", "triplets",
    "inter-cluster learning significantly improves accuracy on triplets", 1.0,
)  # fmt: skip

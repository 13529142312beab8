"""The shipped mechanism under attack: how much of the claimed privacy loss a lying server can measure.

Two worlds differ in one record of one client. A server that may send anything (`lying_server`) keeps every primal
problem where that record matters most (`cases`), drives the real code (`subjects`, `deployed`), scores what it receives
(`scores`) and turns its error rates into a lower bound on the privacy loss (`confidence`). The bound must stay below
the claim and come near it. The same attack must find every planted bug (`planted_bugs`), or it is not to be trusted.
`findings` runs it all.

Out of its scope: which floats a seeded Gaussian can reach, timing, and who takes part.
"""

from pgfl.lab.audit.findings import FULL, QUICK, Finding, Report, Scale, audit

__all__ = ["FULL", "QUICK", "Finding", "Report", "Scale", "audit"]

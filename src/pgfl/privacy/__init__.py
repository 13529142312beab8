"""Record-level differential privacy that is calibrated, counted, capped and written down.

`request` is what a user asks for. `sensitivity` bounds what one record can change. `budget` is the noise schedule and
what may be spent of it; `accounting` turns what was spent into ε at δ. `mechanism` keeps the account of all clients of
a simulation, `ledger` that of one device on disk. `noise` draws the noise.

Notation. φ is the zCDP parameter of one release (the paper's ϕ), ρ the sum of them (zCDP's ρ, not ADMM's penalty),
σ² the variance that the paper calls δ², δ the failure probability, Δ the ℓ2-sensitivity, μ = √(2ρ) = Δ/σ.
"""

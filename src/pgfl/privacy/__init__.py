"""Record-level differential privacy that is calibrated, counted, capped and written down.

`sensitivity` bounds what one record can change, `mechanism` turns that into noise and a budget for all clients of a
simulation, `accounting` turns what was spent into ε at δ, `noise` draws it, and `ledger` is a device's durable account.

Notation. φ is the zCDP parameter of one release (the paper's ϕ), ρ the sum of them (zCDP's ρ, not ADMM's penalty),
σ² the variance that the paper calls δ², δ the failure probability, Δ the ℓ2-sensitivity, μ = √(2ρ) = Δ/σ.
"""

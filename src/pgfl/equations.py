r"""Every update of the paper, one function each. Vectors lie on the last axis; leading axes are the batch.

Only arithmetic operators and arguments are used, so the same lines run under NumPy, JAX and array-api-strict. Sums
(over participants, neighbours or clusters) are passed in as operators: a simulator sums over a flat network, a server
over the messages it received. docs/notation.md maps symbols to names; every ``\label`` occurs once.
A client's `dual` is φ_k/ρ throughout: with this scaling only the primal problem needs ρ.
"""

from collections.abc import Callable

from pgfl.arrays import Array

Operator = Callable[[Array], Array]


def ridge_penalty(lam: Array, server_clients: Array) -> Array:
    """2λ/|C_s|, the strong convexity of a client's regulariser (λ/|C_s|)·‖w‖²."""
    return 2.0 * lam / server_clients


def strong_convexity(rho: Array, lam: Array, server_clients: Array) -> Array:
    """m = ρ + 2λ/|C_s|, the strong convexity of the primal problem."""
    return rho + ridge_penalty(lam, server_clients)


def primal_reach(modulus: Array) -> Array:
    """1/m: how far the solution of a primal problem moves per unit of change in its gradient."""
    return 1.0 / modulus


def descent_reach(step: float, local_steps: int) -> float:
    """How far `local_steps` gradient steps move a model per unit of change in its gradient."""
    return step * local_steps


def linearised_reach(rho: float) -> float:
    """1/ρ: how far a linearised step moves a model per unit of change in its gradient; the regulariser is public."""
    return 1.0 / rho


def rho_by_records(rho: float, records: Array, full_records: int) -> Array:
    """ρ_k = ρ·max(D_k, R)/D_k: a client with fewer than R records takes a shorter step, in proportion to them."""
    return rho * (abs(records - full_records) + records + full_records) / (2.0 * records)


def client_centre(server_model: Array, dual: Array, rho: float, modulus: Array) -> Array:
    r"""The centre c of the client primal update, \label{ClientPrimalUpdate} (4).

    Completing the square, argmin f_k(w) − ⟨φ_k, w − w_{q,s}⟩ + (ρ/2)‖w − w_{q,s}‖² with f_k = ℓ_k/D_k + (λ/|C_s|)‖w‖²
    is argmin ℓ_k/D_k + (m/2)‖w − c‖² with m = ρ + 2λ/|C_s|, c = (w_{q,s} + φ_k/ρ)·ρ/m. The objective solves the rest.
    """
    centre = server_model + dual
    centre *= rho / modulus
    return centre


def linearised_client_step(centre: Array, gradient: Array, rho: float) -> Array:
    """w_k = w_{q,s} − ∇f_k(w_{q,s})/ρ: the client primal update, linearised at the public model and without a dual.

    As w_k − φ_k/ρ = w_{q,s} − ∇f_k(w_k)/ρ, ADMM contributes the same step, with the gradient at its own solution.
    """
    return centre - gradient / rho


def project(model: Array, radius: float | None) -> Array:
    """The nearest point with ‖w‖ ≤ radius, up to a rounding error inwards; the model itself if there is no radius."""
    return model if radius is None else clip_update(model, 0.0 * model, radius)


def client_dual_update(dual: Array, server_model: Array, client_model: Array) -> Array:
    r"""φ_k⁽ⁿ⁾ = φ_k⁽ⁿ⁻¹⁾ + ρ (w_{q,s}⁽ⁿ⁾ − w_k⁽ⁿ⁾), \label{ClientDualUpdate} (5), divided by ρ.

    With privacy `client_model` must be the *released* w̃_k: a dual built from the clean w_k lets a server recover it.
    """
    step = server_model - client_model
    step += dual
    return step


def privacy_noise_addition(client_model: Array, noise: Array) -> Array:
    r"""w̃_k⁽ⁿ⁾ = w_k⁽ⁿ⁾ + ξ_k⁽ⁿ⁾, \label{PrivacyNoiseAddition} (11), with noise ξ_k drawn by the caller."""
    return client_model + noise


def clip_update(client_model: Array, centre: Array, radius: float | None) -> Array:
    """Project the model onto ‖w − centre‖ ≤ radius, if there is a radius; two models never end up further apart.

    The radius is shortened by the possible rounding error, which grows with the centre that a server may choose.
    """
    if radius is None:
        return client_model
    xp = client_model.__array_namespace__()
    move = client_model - centre
    length = xp.sum(move * move, axis=-1, keepdims=True) ** 0.5
    eps = xp.finfo(move.dtype).eps
    size = xp.sum(centre * centre, axis=-1, keepdims=True) ** 0.5
    allowed = xp.clip(radius * (1.0 - 16.0 * eps) - 4.0 * eps * size, 0.0, None)
    return centre + move * xp.where(
        length > allowed, allowed / xp.where(length > 0, length, 1.0 + length), 1.0 + 0.0 * length
    )


def contribution(client_model: Array, dual: Array) -> Array:
    """w_k − φ_k/ρ, what one client contributes to its server's aggregate."""
    return client_model - dual


def late_contribution(update: Array, server_model: Array, weight: Array | float) -> Array:
    """An update of an earlier round as a contribution to today's aggregate: at today's model, with this weight.

    The update is the contribution less the model that the client was given then.
    """
    return server_model + weight * update


def server_aggregation(contributions: Array, mean: Operator) -> Array:
    r"""w̃_{q,s}: the mean of w_k − φ_k/ρ over the participants of cluster q at server s.

    \label{ServerAggregation} (8) of clean models, \label{PrivateServerAggregation} (12) of released ones.
    """
    return mean(contributions)


def inter_server_aggregation(aggregates: Array, neighbourhood_average: Operator) -> Array:
    r"""ŵ_{q,s} = (1/|𝒩_s|) Σ_{p∈𝒩_s} w̃_{q,p}, \label{InterServerAggregation} (9), or with other mixing weights."""
    return neighbourhood_average(aggregates)


def inter_cluster_learning(own: Array, others: Array, tau: Array) -> Array:
    r"""w_{q,s} = (1 − τ) ŵ_{q,s} + τ · (mean of ŵ_{r,s} over r ≠ q), \label{inter-clusterLearning} (10)."""
    learned = tau * others
    learned += (1.0 - tau) * own
    return learned


def server_primal(
    aggregate: Array,
    server_dual: Array,
    own: Array,
    neighbours: Array,
    degree: Array,
    others: Array,
    tau: Array,
    rho: float,
) -> Array:
    r"""The one-step update, \label{ServerPrimal} (6), with the sign of its neighbour term corrected.

    `neighbours` is Σ w_{q,p}⁽ⁿ⁻¹⁾ over 𝒩_s⁻. The printed w_s − w_p diverges for every ρ tried; ADMM has w_s + w_p.
    """
    consensus = 0.5 * rho * (degree * own + neighbours)
    return (aggregate - 0.5 * server_dual + consensus + tau * others) / (1.0 + tau + rho * degree)


def server_dual_update(server_dual: Array, own: Array, neighbours: Array, degree: Array, rho: float) -> Array:
    """ψ_{q,s} += ρ Σ_{p∈𝒩_s⁻} (w_{q,s} − w_{q,p}); the paper prints the opposite sign, which diverges."""
    return server_dual + rho * (degree * own - neighbours)


def adopt_from_neighbours(updated: Array, neighbour_mean: Array, adopting: Array) -> Array:
    """The neighbours' mean where `adopting` is 1 (a cluster known only from them), else the server's own update."""
    return updated + adopting * (neighbour_mean - updated)


def exact_local_step(server_model: Array, aggregate: Array, share: Array) -> Array:
    """t_s = w_s + c_s (w̃_s − w_s): a server's step, scaled by its share c_s of the cluster's clients (notes)."""
    return server_model + share * (aggregate - server_model)


def exact_correction(local_step: Array, server_model: Array, previous_step: Array) -> Array:
    """t⁽ⁿ⁾ + w⁽ⁿ⁻¹⁾ − t⁽ⁿ⁻¹⁾, what exact mixing averages instead of t; it removes the bias of the plain average."""
    return local_step + server_model - previous_step


def exact_mixing_average(published: Array, averaged: Array) -> Array:
    """Half of a server's own estimate and half of the neighbourhood's average: mixing with (I + A)/2."""
    return 0.5 * (published + averaged)


def regularised_loss(loss: Array, ridge_penalty: Array, model: Array) -> Array:
    """f_k = ℓ_k/D_k + (λ/|C_s|)‖w‖², from the mean loss of a client's data."""
    xp = model.__array_namespace__()
    return loss + xp.sum(0.5 * ridge_penalty * (model * model), axis=-1)


def regularised_gradient(gradient: Array, ridge_penalty: Array, model: Array) -> Array:
    """∇f_k, from the gradient of the mean loss."""
    return gradient + ridge_penalty * model


def gradient_step(model: Array, gradient: Array, step: float) -> Array:
    """w − step · ∇f_k(w), one local step of graph FedAvg."""
    return model - step * gradient


# --- who learns from whom: weights between clusters, from what is released anyway -------------------------------------


def half_estimate(model: Array, half: Array, weight: Array, rho: float, curvature: float) -> Array:
    """`weight` times w − ḡ/h̄: where the gradient ḡ = ρ (w − mean contribution) of one half of the clients leads.

    `half` is `weight` times the mean contribution of that half, as it is summed; h̄ is the mean curvature of the losses.
    """
    held = weight * model
    return held - (held - half) * (rho / curvature)


def remembered(memory: Array, new: Array, kept: float) -> Array:
    """A running average that forgets at the rate 1 − `kept`."""
    return kept * memory + (1.0 - kept) * new


def variance_of_mean(first: Array, second: Array, first_mass: Array, second_mass: Array) -> Array:
    """The variance, per coordinate, of the mean of two halves' estimates, from how far the halves are apart.

    Their errors are independent and as large as 1/mass, so E(x₁ − x₂)² = σ² (1/m₁ + 1/m₂), and the mean's variance is
    σ²/(m₁ + m₂).
    """
    xp = first.__array_namespace__()
    apart = xp.mean((first - second) ** 2, axis=-1)
    return apart * first_mass * second_mass / (first_mass + second_mass) ** 2


def fresh_variance(recent: Array, lasting: Array, ratio: float) -> Array:
    """The part of the `recent` variance that is drawn anew every round, at least 0.

    A longer memory averages it further, by `ratio`; what the clients' samples are off by stays as it is.
    """
    xp = recent.__array_namespace__()
    fresh = (recent - lasting) / (1.0 - ratio)
    return xp.where(fresh > recent, recent, xp.where(fresh < 0, 0.0 * fresh, fresh))


def centring(active: Array) -> Array:
    """J = I − 11ᵀ/Q over the clusters where the row `active` is 1; zero elsewhere."""
    xp = active.__array_namespace__()
    count = xp.sum(active, axis=-1)[..., None, None]
    both = active[..., :, None] * active[..., None, :]
    return xp.eye(active.shape[-1], dtype=active.dtype) * both - both / xp.where(count > 0, count, 1.0 + count)


def cluster_covariance(first: Array, second: Array, centring: Array) -> Array:
    """C = sym(X₁X₂ᵀ)/d of two halves' estimates less their mean over clusters: halves err independently, so that
    nothing has to be subtracted.
    """
    xp = first.__array_namespace__()
    one, other = xp.matmul(centring, first), xp.matmul(centring, second)
    product = xp.matmul(one, xp.matrix_transpose(other)) / first.shape[-1]
    return 0.5 * (product + xp.matrix_transpose(product))


def precision(covariance: Array, centring: Array, floor: Array) -> Array:
    """P = J C⁺ J, with the eigenvalues of C at least `floor` and at least 10⁻³ of the largest."""
    xp = covariance.__array_namespace__()
    values, vectors = xp.linalg.eigh(covariance)
    least = xp.max(values, axis=-1, keepdims=True) * LEAST_EIGENVALUE
    least = xp.where(least > floor[..., None], least, floor[..., None] + 0.0 * least)
    values = xp.where(values > least, values, least)
    turned = xp.matmul(centring, vectors)
    return xp.matmul(turned / values[..., None, :], xp.matrix_transpose(turned))


def cluster_mixing(coupling: Array, step: Array) -> Array:
    """A = (I + R·step)⁻¹: applied after every step, w ← A (w − step·∇F(w)) has the fixed point ∇F(w) + R w = 0.

    Rows sum to 1 because those of R sum to 0. Entries may be negative: they cancel, so they are not clipped.
    """
    xp = coupling.__array_namespace__()
    return xp.linalg.inv(xp.eye(coupling.shape[-1], dtype=coupling.dtype) + step[..., :, None] * coupling)


LEAST_EIGENVALUE = 1e-3


def cluster_weights(
    recent: tuple[Array, Array],
    lasting: tuple[Array, Array],
    recent_mass: tuple[Array, Array],
    lasting_mass: tuple[Array, Array],
    active: Array,
    curvature: float,
    step: Array,
    ratio: float,
) -> Array:
    """The weights A with which clusters learn from each other: rows sum to 1, strangers get none.

    Clusters' models spread around their mean with covariance C, and each is known up to a variance V + n: V of the
    clients' samples, n of noise that is drawn anew every round and that a stronger coupling averages less (shrinking a
    mean by k leaves (1 − k)² V, but (1 − k) n). Least squares then couple with R = h̄ diag(V + n/2) · (C − n/2)⁺.
    All estimates are (…, Q, d), and masses and `active` (…, Q).
    """
    xp = active.__array_namespace__()
    variance = variance_of_mean(*recent, *recent_mass)
    fresh = fresh_variance(variance, variance_of_mean(*lasting, *lasting_mass), ratio) * active
    variance = variance * active
    centred = centring(active)
    eye = xp.eye(active.shape[-1], dtype=active.dtype)
    spread = cluster_covariance(*lasting, centred)
    spread = spread - 0.5 * xp.matmul(centred * fresh[..., None, :], centred)
    count = xp.sum(active, axis=-1)
    mean_variance = xp.sum(variance, axis=-1) / xp.where(count > 0, count, 1.0 + count)
    floor = mean_variance * (2.0 / lasting[0].shape[-1])
    tiny = float(xp.finfo(active.dtype).tiny) ** 0.5
    floor = xp.where(floor > tiny, floor, tiny + 0.0 * floor)
    coupling = (curvature * (variance - 0.5 * fresh))[..., :, None] * precision(spread, centred, floor)
    return cluster_mixing(coupling, step * active) * active[..., :, None] + eye * (1.0 - active)[..., :, None]


def uphill(model: Array, given: Array, weight: Array, towards: Array, rho: float, curvature: float) -> Array:
    """`weight` times how far an estimate is from the model in the direction away from `towards`; a column.

    `given` is `weight` times the mean contribution. Its noise was drawn after the model and `towards` were known, so a
    step `towards` goes downhill where the mean over rounds is below 0.
    """
    xp = model.__array_namespace__()
    square = xp.sum(towards**2, axis=-1, keepdims=True)
    unit = towards / xp.sqrt(xp.where(square > 0, square, 1.0 + square))
    return xp.sum((weight * model - given) * unit, axis=-1, keepdims=True) * (rho / curvature)


def downhill_share(uphill: Array, towards: Array, variance: Array) -> Array:
    """How much of their steps `towards` each other clusters take: none below one standard error of gain, all from two.

    `uphill` (…, Q) is the mean of what `uphill` returns, and `variance` that of an estimate, per coordinate. Clusters
    decide together, by the sum of their gains. A step that is taken too early costs more than one that comes late:
    chance opens the way for as long as averages remember.
    """
    xp = towards.__array_namespace__()
    square = xp.sum(towards**2, axis=-1)
    gain = -xp.sum(xp.sqrt(square) * uphill, axis=-1)
    error = xp.sqrt(xp.sum(square * variance, axis=-1))
    share = gain / xp.where(error > 0, error, 1.0 + error) - 1.0
    return xp.where(share < 0, 0.0 * share, xp.where(share > 1, 0.0 * share + 1.0, share))


def learn_by_weights(weights: Array, models: Array) -> Array:
    """w_q ← Σ_r A_{qr} w_r, for models (…, Q, d)."""
    xp = models.__array_namespace__()
    return xp.matmul(weights, models)

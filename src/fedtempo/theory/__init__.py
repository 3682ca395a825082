"""The papers' closed forms as code, with their errors repaired, and measurements that put them to use.

Personalization ratio and Taylor terms (FedDecay), convergence bound (FedDecay), surrogate minimisers and saved steps
and Theorem 2 (decaying K), the effect of weight decay and Theorems 1 and 2 (FedNAR), Proposition 2 (PFLEGO), and
measurements of a federation before training.
"""

from fedtempo.theory.annealing import (
    Condition,
    LimitTerms,
    check_condition,
    co_clipped,
    decay_constant,
    limit_terms,
    norm_bound,
)
from fedtempo.theory.convergence import (
    StronglyConvex,
    convergence_bound,
    convergent_lr,
    local_noise,
    participation_noise,
    rate_constants,
)
from fedtempo.theory.decaying_steps import DecayingSteps
from fedtempo.theory.derivatives import Loss, gradient, hessian_vector, largest_eigenvalue, model_loss
from fedtempo.theory.heterogeneity import disagreement, gradient_diversity, is_convex, optimality_gap
from fedtempo.theory.measure import measure
from fedtempo.theory.measurements import Measurements, drift
from fedtempo.theory.participation import best_lr, gradient_bound, gradient_growth, proposed_lr
from fedtempo.theory.ratio import (
    Coefficients,
    beta_for_ratio,
    fedavg_ratio,
    feddecay_coefficients,
    feddecay_ratio,
    fedsgd_ratio,
    fomaml_ratio,
    gradient_coefficients,
    personalization_ratio,
    schedule_ratio,
    within_round,
)
from fedtempo.theory.savings import local_steps, step_fraction, steps_saved, total_local_steps
from fedtempo.theory.surrogate import (
    Quadratics,
    distortion,
    illustration,
    minimiser_gap_bound,
    minimiser_shift_bound,
    simple_shift_bound,
    surrogate_eigenvalue,
    surrogate_gradient,
    surrogate_minimiser,
    true_minimiser,
)
from fedtempo.theory.taylor import TaylorTerms, actual_method_gradient, predicted_method_gradient, taylor_terms
from fedtempo.theory.weight_decay import (
    Displacement,
    global_displacement,
    local_displacement,
    round_shrinkage,
    weight_decay_for,
)

__all__ = [
    "Coefficients",
    "Condition",
    "DecayingSteps",
    "LimitTerms",
    "Displacement",
    "Loss",
    "Measurements",
    "Quadratics",
    "StronglyConvex",
    "TaylorTerms",
    "actual_method_gradient",
    "beta_for_ratio",
    "co_clipped",
    "check_condition",
    "best_lr",
    "convergence_bound",
    "convergent_lr",
    "decay_constant",
    "disagreement",
    "distortion",
    "drift",
    "fedavg_ratio",
    "feddecay_coefficients",
    "feddecay_ratio",
    "fedsgd_ratio",
    "fomaml_ratio",
    "global_displacement",
    "gradient",
    "gradient_bound",
    "gradient_coefficients",
    "gradient_diversity",
    "gradient_growth",
    "hessian_vector",
    "illustration",
    "is_convex",
    "largest_eigenvalue",
    "limit_terms",
    "local_displacement",
    "local_noise",
    "local_steps",
    "measure",
    "minimiser_gap_bound",
    "minimiser_shift_bound",
    "model_loss",
    "norm_bound",
    "optimality_gap",
    "participation_noise",
    "personalization_ratio",
    "predicted_method_gradient",
    "proposed_lr",
    "rate_constants",
    "round_shrinkage",
    "schedule_ratio",
    "simple_shift_bound",
    "step_fraction",
    "steps_saved",
    "surrogate_eigenvalue",
    "surrogate_gradient",
    "surrogate_minimiser",
    "taylor_terms",
    "total_local_steps",
    "true_minimiser",
    "weight_decay_for",
    "within_round",
]

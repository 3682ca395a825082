"""What a value is, as a hash that is the same in every process, and up to rounding."""

from fedtempo.support.identity.rough import equal_but_for_rounding, rough_identity_of
from fedtempo.support.identity.walk import READ_IN_FULL, Unstable, identity_of

__all__ = ["READ_IN_FULL", "Unstable", "equal_but_for_rounding", "identity_of", "rough_identity_of"]

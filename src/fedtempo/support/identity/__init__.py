"""What a value is, as a hash that is the same in every process."""

from fedtempo.support.identity.walk import READ_IN_FULL, Unstable, identity_of

__all__ = ["READ_IN_FULL", "Unstable", "identity_of"]

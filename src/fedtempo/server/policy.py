"""The upload policy: everything about a run that looks at uploads one by one, before they are added up."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedtempo.server.admission import Admission
from fedtempo.server.fault_injection import Faults
from fedtempo.server.robust import Aggregator, plain_mean


@dataclass(frozen=True)
class UploadPolicy:
    """Injected faults, rules of admission, and the aggregator."""

    admission: Admission = field(default_factory=Admission)
    faults: Faults = field(default_factory=Faults)
    aggregator: Aggregator = plain_mean

    @property
    def needed(self) -> bool:
        """Whether anything here needs to see uploads one by one. If not, a run adds whole blocks, which is faster."""
        return self != UploadPolicy()

"""The server's gate: which received bytes count as an upload. All is checked before anything is added."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from fedtempo.client.objectives import Received
from fedtempo.deploy.wire import NOTHING_KEPT, Layout, Upload, WireError, upload_from_bytes, upload_layout
from fedtempo.errors import first_line
from fedtempo.federation.federation import Federation
from fedtempo.federation.traffic import unpack_upload, upload_forms
from fedtempo.server.admission import Expected, Inbox, refusal


class UploadError(WireError):
    """Bytes that do not count as an upload; the message is the reason in the report."""


@dataclass(frozen=True)
class UploadForm:
    """What a client of this federation must send, from the server's own model and client program."""

    expected: Expected
    sent: Expected
    """What it must send as it travels: the same, or the parts of compressed tensors."""
    layout: Layout
    keeps: bool
    """Whether clients keep something for themselves between rounds."""


def upload_form(federation: Federation) -> UploadForm:
    """Run the client program on nothing to see what it leaves."""
    shared = federation.first_shared()
    received = Received(shared, federation.first_extra(shared))
    client = int(federation.problem.data.clients[0])
    carry = federation.program.init(received, federation.first_personal(client, shared))
    _, personal, measured = federation.program.finish(received, carry)
    notes = bool(federation.problem.keeps_loss) and not federation.algorithm.memory.stateless
    keeps = notes or bool(federation.kept_after({**personal, **federation.first_error_memory}))
    sent = upload_forms(federation)
    return UploadForm(federation.expected, sent, upload_layout(sent, measured), keeps)


@dataclass
class Gate:
    """One round's gate."""

    federation: Federation
    form: UploadForm
    round: int
    cohort: Collection[int]
    limit: float = math.inf
    """The largest norm that an upload may have."""
    inbox: Inbox = field(init=False)

    def __post_init__(self) -> None:
        self.inbox = Inbox(self.round, self.cohort)

    def admit(self, data: bytes, client: int) -> Upload:
        """The upload of this client in these bytes, or `UploadError`."""
        try:
            upload = upload_from_bytes(data, self.form.layout, self.form.sent)
        except WireError as error:
            raise UploadError(f"malformed: {error}") from None
        if upload.client != client:
            raise UploadError("another client's upload")
        reason = self.inbox.refusal(upload.client, upload.round)
        upload = upload if reason is not None else self._decoded(upload)
        reason = reason or self._wrong(upload)
        if reason is not None:
            raise UploadError(reason)
        return upload

    def _decoded(self, upload: Upload) -> Upload:
        """The upload with whole tensors, in place of the parts that came."""
        if self.federation.algorithm.uploads.compress is None:
            return upload
        try:
            groups = unpack_upload(self.federation, upload.groups, self.round, upload.client)
        except Exception as error:  # a user's decoder may raise anything when the bytes are not its own
            raise UploadError(f"malformed: {first_line(error)}") from None
        return replace(upload, groups=groups)

    def _wrong(self, upload: Upload) -> str | None:
        """What is wrong with an upload of the right form, by the rules of admission and what the server knows.

        A loss or a measurement that is not finite costs itself only: the sum leaves it out and counts it.
        """
        if self.federation.checks_uploads:
            reason = refusal(upload.groups, upload.weight, self.form.expected, self.limit)
            if reason is not None:
                return reason
        own = self.federation.weight(upload.client, 0)
        if self.federation.algorithm.weighting != "processed" and upload.weight != own:
            return "wrong weight"
        if not math.isfinite(upload.weight):
            return "not finite"
        return "wrong receipt" if (upload.kept == NOTHING_KEPT) == self.form.keeps else None

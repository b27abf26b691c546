"""WHAT is exchanged: frozen records, pure, one family of types for the whole protocol."""

from baton.protocol.artifacts import Artifact
from baton.protocol.audit import AuditRecord
from baton.protocol.context import Context, Message, Transfer
from baton.protocol.handoff import Handoff
from baton.protocol.limits import Autonomy, Budget, Limits
from baton.protocol.profile import Profile
from baton.protocol.results import Acceptance, Return

__all__ = [
    "Acceptance",
    "Artifact",
    "AuditRecord",
    "Autonomy",
    "Budget",
    "Context",
    "Handoff",
    "Limits",
    "Message",
    "Profile",
    "Return",
    "Transfer",
]

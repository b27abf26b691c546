"""A conversation in the words of the providers: OpenAI chat, OpenAI responses, Anthropic messages.

`chat`, `responses` and `anthropic` each have `read` (the conversation of a request as our messages), `write` (our
messages as the part of a request that holds the conversation) and `problems` (what that provider would refuse in it).
"""

from baton.protocol.conversation import anthropic, chat, responses
from baton.protocol.conversation.normaliser import normal

__all__ = ["anthropic", "chat", "normal", "responses"]

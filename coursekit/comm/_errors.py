"""What goes wrong with communicators and buffers."""


class CommError(ValueError):
    """A communicator or a buffer breaks a rule; the message has the rule and the next step."""

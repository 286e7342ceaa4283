"""Changes as messages that carry what is missing, and subscriptions as filters that need no state."""

"""When a condition holds, column by column."""

"""Random schemas, subscriptions and changes for the property tests.

pick       choices drawn from Hypothesis
values     pools of values that collide            schemas     streams and tables
predicates conditions, and how they are written    sources     FROM and its joins
queries    subscriptions of every shape            changes     changes, and a model of tables
cases      all of it: one example of a property test
"""

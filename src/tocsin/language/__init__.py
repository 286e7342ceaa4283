"""From SQL text to a query with resolved names and types, and to its normal form.

statements.py   split a file into statements
dialect.py      text to sqlglot's tree, with positions; syntax errors
ddl.py          CREATE TABLE, CREATE STREAM, DROP
algebra/        the query as frozen values: Query, Column, Compare, Between, ...
sql.py          SELECT to Query: parse_query
scope.py        resolve table and column names
literals.py     read constants
conditions.py   WHERE to predicates
refresh_conditions.py  when a refresh is due: changes > 1000 OR age > 1 minute
joins.py        join conditions: equalities and bands
rewrite.py      rules and normal forms (DNF, or else CNF)
ranges.py       intersect and unite conditions on one column
deep_stack.py   calls that nest deeply, with enough stack
shape.py        the shape of a query, and its conditions table by table: plan
template.py     queries with slots; texts that differ only in literals share one parse
bulk.py         many subscriptions at once: a template with a table of parameters
predicates.py   many subscriptions at once: a column of predicates
"""

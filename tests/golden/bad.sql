-- Rejected statements, each with its message.
CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, sector STRING, listed DATE, PRIMARY KEY (symbol));

CREATE TABLE reviews (id BIGINT PRIMARY KEY, symbol STRING, rating DOUBLE, at TIMESTAMP, public BOOLEAN);

CREATE TABLE owners (owner STRING, symbol STRING, shares BIGINT, since DATE, PRIMARY KEY (owner, symbol));

CREATE STREAM listings (model STRING, price DOUBLE, color STRING, storage BIGINT, sold BOOLEAN, day DATE, seen TIMESTAMP);

CREATE STREAM events;

-- Definitions.
-- error: table 't' has no primary key
--   line 1, column 14: CREATE TABLE t (a BIGINT)
--                                   ^
-- hint: add PRIMARY KEY (column, ...)
CREATE TABLE t (a BIGINT);

-- error: table 't' has no primary key
--   line 1, column 14: CREATE TABLE t
--                                   ^
-- hint: add PRIMARY KEY (column, ...)
CREATE TABLE t;

-- error: 'BIGNT' is not a type here
--   line 1, column 19: CREATE TABLE t (a BIGNT PRIMARY KEY)
--                                        ^^^^^
-- hint: did you mean 'BIGINT'?
CREATE TABLE t (a BIGNT PRIMARY KEY);

-- error: 'MAP' is not a type here
--   line 1, column 19: CREATE TABLE t (a MAP PRIMARY KEY)
--                                        ^^^
-- hint: types are BIGINT, DOUBLE, DECIMAL(p,s), STRING, BOOLEAN, DATE and TIMESTAMP
CREATE TABLE t (a MAP PRIMARY KEY);

-- error: column 'a' has no type
--   line 1, column 18: CREATE TABLE t (a, b BIGINT)
--                                       ^
-- hint: types are BIGINT, DOUBLE, STRING, BOOLEAN, DATE and TIMESTAMP
CREATE TABLE t (a, b BIGINT);

-- error: column 'A' occurs twice
--   line 1, column 27: CREATE TABLE t (a BIGINT, A STRING, PRIMARY KEY (a))
--                                                ^
-- hint: names that differ only by case are one
CREATE TABLE t (a BIGINT, A STRING, PRIMARY KEY (a));

-- error: there is no column 'b' in t
--   line 1, column 40: CREATE TABLE t (a BIGINT, PRIMARY KEY (b))
--                                                             ^
-- hint: its columns are a
CREATE TABLE t (a BIGINT, PRIMARY KEY (b));

-- error: a table has one primary key
--   line 1, column 48: CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT PRIMARY KEY)
--                                                                     ^^^^^^^^^^^
-- hint: write PRIMARY KEY (a, b) for several columns
CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT PRIMARY KEY);

-- error: 'DECIMAL(20, 2)' is not a type here
--   line 1, column 19: CREATE TABLE t (a DECIMAL(20, 2), PRIMARY KEY (a))
--                                        ^^^^^^^^^^^^^^
-- hint: DECIMAL(p,s) has at most 18 digits in all, s of them behind the point; or write DOUBLE
CREATE TABLE t (a DECIMAL(20, 2), PRIMARY KEY (a));

-- error: the name '_op' is reserved for batches of changes
--   line 1, column 17: CREATE TABLE t (_op STRING PRIMARY KEY)
--                                      ^^^
-- hint: choose another
CREATE TABLE t (_op STRING PRIMARY KEY);

-- error: a name has one part
--   line 1, column 16: CREATE TABLE db.t (a BIGINT PRIMARY KEY)
--                                     ^
-- hint: put a name with a dot in it in backticks
CREATE TABLE db.t (a BIGINT PRIMARY KEY);

-- error: a stream has no primary key
--   line 1, column 27: CREATE STREAM t (a BIGINT PRIMARY KEY)
--                                                ^^^^^^^^^^^
-- hint: leave it out, or make it a table
CREATE STREAM t (a BIGINT PRIMARY KEY);

-- error: expecting a duration after RETAIN
--   line 1, column 24: CREATE STREAM t RETAIN 10 minutes
--                                             ^^
-- hint: write it in quotes: RETAIN '10 minutes'
CREATE STREAM t RETAIN 10 minutes;

-- error: this is not a duration
--   line 1, column 35: CREATE STREAM t (a BIGINT) RETAIN '10'
--                                                        ^^^^
-- hint: write positive numbers with units, as in '10 minutes' or '1 hour 30 minutes'
CREATE STREAM t (a BIGINT) RETAIN '10';

-- error: this is not a duration
--   line 1, column 35: CREATE STREAM t (a BIGINT) RETAIN '-5 minutes'
--                                                        ^^^^^^^^^^^^
-- hint: write positive numbers with units, as in '10 minutes' or '1 hour 30 minutes'
CREATE STREAM t (a BIGINT) RETAIN '-5 minutes';

-- error: the duration is below a microsecond
--   line 1, column 24: CREATE STREAM t RETAIN '0 seconds'
--                                             ^^^^^^^^^^^
-- hint: leave RETAIN out to keep no events
CREATE STREAM t RETAIN '0 seconds';

-- error: 'minuts' is not a unit of time
--   line 1, column 24: CREATE STREAM t RETAIN '5 minuts'
--                                             ^^^^^^^^^^
-- hint: did you mean 'minutes'?
CREATE STREAM t RETAIN '5 minuts';

-- error: 'month' is not a unit of time
--   line 1, column 24: CREATE STREAM t RETAIN '1 month'
--                                             ^^^^^^^^^
-- hint: units are microseconds, milliseconds, seconds, minutes, hours, days, weeks
CREATE STREAM t RETAIN '1 month';

-- error: columns come before RETAIN
--   line 1, column 33: CREATE STREAM t RETAIN '1 hour' (a BIGINT)
--                                                      ^
-- hint: write CREATE STREAM name (...) RETAIN '10 minutes'
CREATE STREAM t RETAIN '1 hour' (a BIGINT);

-- error: RETAIN is for streams
--   line 1, column 39: CREATE TABLE t (a BIGINT PRIMARY KEY) RETAIN '1 hour'
--                                                            ^^^^^^^^^^^^^^^
-- hint: leave it out: a table keeps its rows until they are deleted
CREATE TABLE t (a BIGINT PRIMARY KEY) RETAIN '1 hour';

-- error: PAYLOAD is for tables
--   line 1, column 38: CREATE STREAM t (a BIGINT, p STRING) PAYLOAD (p)
--                                                           ^^^^^^^^^^^
-- hint: leave it out: an event passes once, with all its columns; or make it a table
CREATE STREAM t (a BIGINT, p STRING) PAYLOAD (p);

-- error: there is no column 'q' in t
--   line 1, column 58: CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (q)
--                                                                               ^
-- hint: its columns are a, p
CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (q);

-- error: column 'a' is in the key
--   line 1, column 61: CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (p, a)
--                                                                                  ^
-- hint: leave it out: the payload is what rows are not known by
CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (p, a);

-- error: column 'p' occurs twice in the payload
--   line 1, column 61: CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (p, P)
--                                                                                  ^
-- hint: name it once
CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (p, P);

-- error: expecting ( before a payload column
--   line 1, column 57: CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD p
--                                                                              ^
-- hint: write lists in parentheses
CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD p;

-- error: expecting , or ) after a payload column
--   line 1, column 60: CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (p b)
--                                                                                 ^
-- hint: write names of columns, as in PAYLOAD (photo, text)
CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (p b);

-- error: PAYLOAD occurs twice
--   line 1, column 61: CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (p) PAYLOAD (p)
--                                                                                  ^^^^^^^
-- hint: name all columns in one list
CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (p) PAYLOAD (p);

-- error: PAYLOAD has no KEY
--   line 1, column 61: CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (p) KEY (a)
--                                                                                  ^^^
-- hint: leave it out: rows are known by the table's PRIMARY KEY
CREATE TABLE t (a BIGINT PRIMARY KEY, p STRING) PAYLOAD (p) KEY (a);

-- error: expecting CREATE TABLE or CREATE STREAM
--   line 1, column 8: CREATE VIEW v AS SELECT * FROM stocks
--                            ^^^^
-- hint: only tables and streams can be defined
CREATE VIEW v AS SELECT * FROM stocks;

-- error: expecting DROP TABLE or DROP STREAM
--   line 1, column 6: DROP VIEW v
--                          ^^^^
-- hint: only tables and streams can be defined
DROP VIEW v;

-- Names.
-- error: there is no table or stream 'stoks'
--   line 1, column 15: SELECT * FROM stoks
--                                    ^^^^^
-- hint: did you mean 'stocks'?
SELECT * FROM stoks;

-- error: there is no table or stream 'Stocks'
--   line 1, column 15: SELECT * FROM `Stocks`
--                                    ^^^^^^^^
-- hint: did you mean 'stocks'?
SELECT * FROM `Stocks`;

-- error: there is no column 'prise' in listings
--   line 1, column 30: SELECT * FROM listings WHERE prise <= 5
--                                                   ^^^^^
-- hint: did you mean 'price'?
SELECT * FROM listings WHERE prise <= 5;

-- error: there is no column 'nothing_like_it' in stocks
--   line 1, column 8: SELECT nothing_like_it FROM stocks
--                            ^^^^^^^^^^^^^^^
-- hint: the columns are symbol, per, risk, sector, listed
SELECT nothing_like_it FROM stocks;

-- error: there is no table 'stocks' in the query
--   line 1, column 30: SELECT * FROM stocks s WHERE stocks.per > 1
--                                                   ^^^^^^
-- hint: the query reads s
SELECT * FROM stocks s WHERE stocks.per > 1;

-- error: there is no column 'symbl' in stocks
--   line 1, column 46: SELECT * FROM stocks s JOIN reviews r USING (symbl)
--                                                                   ^^^^^
-- hint: did you mean 'symbol'?
SELECT * FROM stocks s JOIN reviews r USING (symbl);

-- error: column 'symbol' is in more than one table
--   line 1, column 8: SELECT symbol FROM stocks s JOIN reviews r ON s.symbol = r.symbol
--                            ^^^^^^
-- hint: write s.symbol or r.symbol
SELECT symbol FROM stocks s JOIN reviews r ON s.symbol = r.symbol;

-- error: two tables are called 'stocks'
--   line 1, column 27: SELECT * FROM stocks JOIN stocks ON per = risk
--                                                ^^^^^^
-- hint: give one an alias: stocks AS other
SELECT * FROM stocks JOIN stocks ON per = risk;

-- error: two columns of the answer are called 'a'
--   line 1, column 18: SELECT per AS a, risk AS a FROM stocks
--                                       ^^^^^^^^^
-- hint: give one an alias: AS name
SELECT per AS a, risk AS a FROM stocks;

-- error: a place is a number from 0 or a name in quotes
--   line 1, column 28: SELECT * FROM events WHERE a[b] = 5
--                                                 ^^^
-- hint: write attribute.name, attribute['any name'] or attribute[0]
SELECT * FROM events WHERE a[b] = 5;

-- error: [*] is for exists
--   line 1, column 28: SELECT * FROM events WHERE tags[*] = 'new'
--                                                 ^^^^^^
-- hint: write exists(tags[*], t -> t = 'new')
SELECT * FROM events WHERE tags[*] = 'new';

-- error: exists looks at one list only
--   line 1, column 46: SELECT * FROM events WHERE exists(tags, t -> u = 'new')
--                                                                   ^
-- hint: its conditions are about t, the element
SELECT * FROM events WHERE exists(tags, t -> u = 'new');

-- error: syntax error at ')'
--   line 1, column 54: SELECT * FROM events WHERE exists(tags, t -> t > 5, 3)
--                                                                           ^
SELECT * FROM events WHERE exists(tags, t -> t > 5, 3);

-- error: exists takes a condition on one element
--   line 1, column 28: SELECT * FROM events WHERE exists(tags, (t, u) -> t = u)
--                                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write exists(tags, t -> t = 'new')
SELECT * FROM events WHERE exists(tags, (t, u) -> t = u);

-- error: array_contains takes a list and a constant
--   line 1, column 28: SELECT * FROM events WHERE array_contains(tags, color)
--                                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write array_contains(tags, 'new')
SELECT * FROM events WHERE array_contains(tags, color);

-- error: IS MISSING is for attributes of open streams
--   line 1, column 28: SELECT * FROM stocks WHERE symbol IS MISSING
--                                                 ^^^^^^^^^^^^^^^^^
-- hint: a column is never missing: write IS NULL
SELECT * FROM stocks WHERE symbol IS MISSING;

-- error: there is no table 'symbol' in the query
--   line 1, column 28: SELECT * FROM stocks WHERE symbol.part = 'A'
--                                                 ^^^^^^
-- hint: the query reads stocks
SELECT * FROM stocks WHERE symbol.part = 'A';

-- error: there is no column 'colour' in listings
--   line 3, column 8:    AND colour = 'red'
--                            ^^^^^^
-- hint: did you mean 'color'?
SELECT * FROM listings
 WHERE price <= 5
   AND colour = 'red';

-- Types.
-- error: price is a DOUBLE and cannot be compared with a STRING
--   line 1, column 38: SELECT * FROM listings WHERE price = 'cheap'
--                                                           ^^^^^^^
-- hint: numbers are written without quotes; names are quoted with backticks
SELECT * FROM listings WHERE price = 'cheap';

-- error: model is a STRING and cannot be compared with a BIGINT
--   line 1, column 38: SELECT * FROM listings WHERE model = 5
--                                                           ^
-- hint: put the text in quotes
SELECT * FROM listings WHERE model = 5;

-- error: sold is a BOOLEAN and cannot be compared with a BIGINT
--   line 1, column 37: SELECT * FROM listings WHERE sold = 1
--                                                          ^
-- hint: write TRUE or FALSE
SELECT * FROM listings WHERE sold = 1;

-- error: day is a DATE and cannot be compared with a BIGINT
--   line 1, column 36: SELECT * FROM listings WHERE day = 20130131
--                                                         ^^^^^^^^
-- hint: write DATE '2013-01-31' or TIMESTAMP '2013-01-31 05:00:00'
SELECT * FROM listings WHERE day = 20130131;

-- error: day is a DATE, and 'yesterday' cannot be read as one
--   line 1, column 36: SELECT * FROM listings WHERE day = 'yesterday'
--                                                         ^^^^^^^^^^^
-- hint: write it like '2013-01-31'
SELECT * FROM listings WHERE day = 'yesterday';

-- error: '2013-13-01 00:00:00' is not a TIMESTAMP
--   line 1, column 47: SELECT * FROM listings WHERE seen > TIMESTAMP '2013-13-01 00:00:00'
--                                                                    ^^^^^^^^^^^^^^^^^^^^^
-- hint: write it like '2013-01-31 05:00:00', perhaps with a zone such as +01:00
SELECT * FROM listings WHERE seen > TIMESTAMP '2013-13-01 00:00:00';

-- error: price is a DOUBLE and cannot be compared with a STRING
--   line 1, column 43: SELECT * FROM listings WHERE price IN (1, 'two')
--                                                                ^^^^^
-- hint: numbers are written without quotes; names are quoted with backticks
SELECT * FROM listings WHERE price IN (1, 'two');

-- error: price is a DOUBLE and cannot be compared with a STRING
--   line 1, column 50: SELECT * FROM listings WHERE price BETWEEN 1 AND 'two'
--                                                                       ^^^^^
-- hint: numbers are written without quotes; names are quoted with backticks
SELECT * FROM listings WHERE price BETWEEN 1 AND 'two';

-- error: LIKE is for text, and price is a DOUBLE
--   line 1, column 30: SELECT * FROM listings WHERE price LIKE '5%'
--                                                   ^^^^^^^^^^^^^^^
-- hint: compare with = < >
SELECT * FROM listings WHERE price LIKE '5%';

-- error: price is a DOUBLE; only a BOOLEAN is a condition by itself
--   line 1, column 30: SELECT * FROM listings WHERE price
--                                                   ^^^^^
-- hint: compare it with a constant
SELECT * FROM listings WHERE price;

-- error: a STRING cannot be compared with a BIGINT
--   line 1, column 30: SELECT * FROM listings WHERE "price" = 5
--                                                   ^^^^^^^^^^^
-- hint: one side should be a column; names are quoted with backticks, not with quotes
SELECT * FROM listings WHERE "price" = 5;

-- error: the number is out of range
--   line 1, column 38: SELECT * FROM listings WHERE price < 1e999
--                                                           ^^^^^
-- hint: a DOUBLE goes up to about 1.8e308
SELECT * FROM listings WHERE price < 1e999;

-- error: 'abc' is not a DOUBLE
--   line 1, column 38: SELECT * FROM listings WHERE price = CAST('abc' AS DOUBLE)
--                                                           ^^^^^^^^^^^^^^^^^^^^^
-- hint: write a number, NaN, Infinity or -Infinity
SELECT * FROM listings WHERE price = CAST('abc' AS DOUBLE);

-- error: CAST to DECIMAL(3, 4) is not supported
--   line 1, column 38: SELECT * FROM listings WHERE price = CAST('5' AS DECIMAL(3, 4))
--                                                           ^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: DECIMAL(p,s) has at most 18 digits in all, s of them behind the point
SELECT * FROM listings WHERE price = CAST('5' AS DECIMAL(3, 4));

-- error: the pattern is not valid: missing ): (x5
--   line 1, column 42: SELECT * FROM listings WHERE model RLIKE '(x5'
--                                                               ^^^^^
-- hint: RLIKE takes RE2 patterns
SELECT * FROM listings WHERE model RLIKE '(x5';

-- error: the pattern is not valid: it ends in a backslash
--   line 1, column 41: SELECT * FROM listings WHERE model LIKE 'x5\\'
--                                                              ^^^^^^
-- hint: double the last backslash
SELECT * FROM listings WHERE model LIKE 'x5\\';

-- error: SUM is for numbers, and symbol is a STRING
--   line 1, column 8: SELECT SUM(symbol) FROM stocks
--                            ^^^^^^^^^^^
-- hint: use COUNT, MIN or MAX
SELECT SUM(symbol) FROM stocks;

-- error: s.symbol is a STRING and r.id a BIGINT: they cannot be equal
--   line 1, column 42: SELECT * FROM stocks s JOIN reviews r ON s.symbol = r.id
--                                                               ^^^^^^^^^^^^^^^
-- hint: join columns of one kind
SELECT * FROM stocks s JOIN reviews r ON s.symbol = r.id;

-- error: s.symbol is a STRING and r.symbol a STRING: a band needs two numbers or two times
--   line 1, column 42: SELECT * FROM stocks s JOIN reviews r ON s.symbol < r.symbol
--                                                               ^^^^^^^^^^^^^^^^^^^
-- hint: join other columns by =
SELECT * FROM stocks s JOIN reviews r ON s.symbol < r.symbol;

-- error: s.per is a DOUBLE and r.at a TIMESTAMP: a band needs two numbers or two times
--   line 1, column 42: SELECT * FROM stocks s JOIN reviews r ON s.per - r.at < 5
--                                                               ^^^^^^^^^^^^^^^^
-- hint: join other columns by =
SELECT * FROM stocks s JOIN reviews r ON s.per - r.at < 5;

-- error: - does not take TIMESTAMP and TIMESTAMP
--   line 1, column 43: SELECT * FROM reviews a JOIN reviews b ON a.at - b.at < 5 AND a.id = b.id
--                                                                ^^^^^^^^^^^
-- hint: subtract numbers, or days or an INTERVAL from a time; of two times write datediff or timestampdiff
SELECT * FROM reviews a JOIN reviews b ON a.at - b.at < 5 AND a.id = b.id;

-- error: s.per is a DOUBLE: an INTERVAL needs times
--   line 1, column 42: SELECT * FROM stocks s JOIN reviews r ON s.per - r.rating < INTERVAL '5' MINUTE
--                                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write a number
SELECT * FROM stocks s JOIN reviews r ON s.per - r.rating < INTERVAL '5' MINUTE;

-- error: this interval cannot be read
--   line 1, column 57: SELECT * FROM reviews a JOIN reviews b ON a.at - b.at < INTERVAL '5' MONTH
--                                                                              ^^^^^^^^^^^^^^^^^^
-- hint: write INTERVAL '5' MINUTE; units go from microsecond to week
SELECT * FROM reviews a JOIN reviews b ON a.at - b.at < INTERVAL '5' MONTH;

-- error: ILIKE is for text, and price is a DOUBLE
--   line 1, column 30: SELECT * FROM listings WHERE price ILIKE 'x%'
--                                                   ^^^^^^^^^^^^^^^^
-- hint: compare with = < >
SELECT * FROM listings WHERE price ILIKE 'x%';

-- error: LIKE takes one pattern in quotes
--   line 1, column 41: SELECT * FROM listings WHERE model LIKE ANY ('a%', 'b%')
--                                                              ^^^^^^^^^^^^^^^^
-- hint: join several by OR
SELECT * FROM listings WHERE model LIKE ANY ('a%', 'b%');

-- error: IS takes NULL, TRUE or FALSE here
--   line 1, column 30: SELECT * FROM listings WHERE sold IS 5
--                                                   ^^^^^^^^^
-- hint: write = to compare
SELECT * FROM listings WHERE sold IS 5;

-- error: a subquery cannot stand here
--   line 1, column 39: SELECT * FROM listings WHERE price = (SELECT MAX(per) FROM stocks)
--                                                            ^^^^^^
-- hint: [NOT] EXISTS (SELECT ...) and x [NOT] IN (SELECT y ...) stand in WHERE, alone or beside AND
SELECT * FROM listings WHERE price = (SELECT MAX(per) FROM stocks);

-- error: listings is a stream, and the events of a subquery need a window
--   line 1, column 15: SELECT * FROM listings WHERE EXISTS (SELECT * FROM stocks)
--                                    ^^^^^^^^
-- hint: give it a window: WITH (window = '10 minutes')
SELECT * FROM listings WHERE EXISTS (SELECT * FROM stocks);

-- error: listings is a stream, and the events of a subquery need a window
--   line 1, column 15: SELECT * FROM listings WHERE model IN (SELECT symbol FROM stocks)
--                                    ^^^^^^^^
-- hint: give it a window: WITH (window = '10 minutes')
SELECT * FROM listings WHERE model IN (SELECT symbol FROM stocks);

-- error: rows of values cannot be compared
--   line 1, column 30: SELECT * FROM listings WHERE (price, storage) = (1, 2)
--                                                   ^^^^^^^^^^^^^^^^
-- hint: compare the columns one by one
SELECT * FROM listings WHERE (price, storage) = (1, 2);

-- error: a condition is expected here, not a value
--   line 1, column 30: SELECT * FROM listings WHERE 5
--                                                   ^
-- hint: write: column operator constant
SELECT * FROM listings WHERE 5;

-- error: an aggregate is not supported in a condition
--   line 1, column 30: SELECT * FROM listings WHERE COUNT(*) > 5
--                                                   ^^^^^^^^
-- hint: compare it in HAVING, after GROUP BY
SELECT * FROM listings WHERE COUNT(*) > 5;

-- error: an interval is no value of a row
--   line 1, column 37: SELECT * FROM listings WHERE seen > INTERVAL '5' MINUTE
--                                                          ^^^^^^^^^^^^^^^^^^^
-- hint: compare with DATE '...' or TIMESTAMP '...', or add it to a time
SELECT * FROM listings WHERE seen > INTERVAL '5' MINUTE;

-- error: parameters are supported only in templates
--   line 1, column 38: SELECT * FROM listings WHERE price > :limit
--                                                           ^^^^^^
-- hint: write the value, or use subscribe_many
SELECT * FROM listings WHERE price > :limit;

-- error: NATURAL JOIN is not supported
--   line 1, column 22: SELECT * FROM stocks NATURAL JOIN reviews
--                                           ^^^^^^^
-- hint: write JOIN, LEFT, RIGHT or FULL JOIN ... ON or USING
SELECT * FROM stocks NATURAL JOIN reviews;

-- error: LEFT SEMI JOIN is not supported
--   line 1, column 22: SELECT * FROM stocks LEFT SEMI JOIN reviews ON stocks.symbol = reviews.symbol
--                                           ^^^^
-- hint: write WHERE EXISTS (SELECT ...)
SELECT * FROM stocks LEFT SEMI JOIN reviews ON stocks.symbol = reviews.symbol;

-- error: nothing joins reviews with stocks
--   line 1, column 23: SELECT * FROM stocks, reviews
--                                            ^^^^^^^
-- hint: add a condition such as a.x = b.x
SELECT * FROM stocks, reviews;

-- error: nothing joins r with s
--   line 1, column 25: SELECT * FROM stocks s, reviews r WHERE s.per > 5 AND r.rating > 5
--                                              ^^^^^^^^^
-- hint: add a condition such as a.x = b.x
SELECT * FROM stocks s, reviews r WHERE s.per > 5 AND r.rating > 5;

-- error: nothing joins o with s, r
--   line 1, column 36: SELECT * FROM stocks s, reviews r, owners o WHERE s.symbol = r.symbol
--                                                         ^^^^^^^^
-- hint: add a condition such as a.x = b.x
SELECT * FROM stocks s, reviews r, owners o WHERE s.symbol = r.symbol;

-- error: the joins form a cycle: o and s are already connected
--   line 1, column 99: SELECT * FROM stocks s, reviews r, owners o WHERE s.symbol = r.symbol AND r.symbol = o.symbol AND o.symbol = s.symbol
--                                                                                                                        ^^^^^^^^^^^^^^^^^^^
-- hint: joins form a tree: leave out a condition that follows from the others
SELECT * FROM stocks s, reviews r, owners o WHERE s.symbol = r.symbol AND r.symbol = o.symbol AND o.symbol = s.symbol;

-- error: nothing joins r with s
--   line 1, column 25: SELECT * FROM stocks s, reviews r WHERE s.symbol = r.symbol OR s.per > 5
--                                              ^^^^^^^^^
-- hint: add a condition such as a.x = b.x
SELECT * FROM stocks s, reviews r WHERE s.symbol = r.symbol OR s.per > 5;

-- error: tables cannot be joined by !=
--   line 1, column 41: SELECT * FROM stocks s, reviews r WHERE s.symbol != r.symbol
--                                                              ^^^^^^^^^^^^^^^^^^^^
-- hint: a band is like: a.x - b.y BETWEEN -5 AND 10
SELECT * FROM stocks s, reviews r WHERE s.symbol != r.symbol;

-- error: a band is about the difference of two columns
--   line 1, column 41: SELECT * FROM stocks s, reviews r WHERE s.per + r.rating < 5
--                                                              ^^^^^^^^^^^^^^^^^^^^
-- hint: a band is like: a.x - b.y BETWEEN -5 AND 10
SELECT * FROM stocks s, reviews r WHERE s.per + r.rating < 5;

-- error: the ends of a band are finite numbers or intervals
--   line 1, column 60: SELECT * FROM stocks s, reviews r WHERE s.per - r.rating < CAST('NaN' AS DOUBLE)
--                                                                                 ^^^^^^^^^^^^^^^^^^^^^
-- hint: a band is like: a.x - b.y BETWEEN -5 AND 10
SELECT * FROM stocks s, reviews r WHERE s.per - r.rating < CAST('NaN' AS DOUBLE);

-- error: listings is a stream, and joins tables by = alone
--   line 1, column 15: SELECT * FROM listings JOIN stocks ON price > per AND model = symbol
--                                    ^^^^^^^^
-- hint: compare columns of one table, or give it a window: WITH (window = '10 minutes')
SELECT * FROM listings JOIN stocks ON price > per AND model = symbol;

-- error: a query joins at most 8 tables
--   line 1, column 106: ... T a.id FROM reviews a, reviews b, reviews c, reviews d, reviews e, reviews f, reviews g, reviews h, reviews i
--                                                                                                                               ^^^^^^^^^
-- hint: join fewer
SELECT a.id FROM reviews a, reviews b, reviews c, reviews d, reviews e, reviews f, reviews g, reviews h, reviews i;

-- error: a constant is not an answer
--   line 1, column 8: SELECT 'symbol' FROM stocks
--                            ^^^^^^^^
-- hint: names are quoted with backticks, not with quotes: `symbol`
SELECT 'symbol' FROM stocks;

-- error: symbol stands beside an aggregate, without GROUP BY
--   line 1, column 8: SELECT symbol, MIN(per) FROM stocks
--                            ^^^^^^
-- hint: write GROUP BY symbol, or leave it out
SELECT symbol, MIN(per) FROM stocks;

-- error: MIN takes one column
--   line 1, column 8: SELECT MIN(per, risk) FROM stocks
--                            ^^^^^^^^^^^^^^
-- hint: an answer has columns, *, or COUNT, SUM, AVG, MIN, MAX of a column
SELECT MIN(per, risk) FROM stocks;

-- error: window functions are not supported
--   line 1, column 8: SELECT rank() OVER (ORDER BY per) FROM stocks
--                            ^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: the first n rows of a table are ORDER BY column LIMIT n; of each group, QUALIFY ROW_NUMBER() OVER (PARTITION BY column ORDER BY column) <= n
SELECT rank() OVER (ORDER BY per) FROM stocks;

-- error: EXCEPT and REPLACE after * are not supported
--   line 1, column 8: SELECT * EXCEPT (per) FROM stocks
--                            ^^^^^^^^^^^^^
-- hint: name the columns
SELECT * EXCEPT (per) FROM stocks;

-- error: listings is a stream and cannot be aggregated
--   line 1, column 8: SELECT MIN(price) FROM listings
--                            ^^^^^^^^^^
-- hint: SELECT its columns; or give it a window: WITH (window = '10 minutes')
SELECT MIN(price) FROM listings;

-- error: listings is a stream and cannot be made distinct
--   line 1, column 8: SELECT DISTINCT color FROM listings
--                            ^^^^^^^^
-- hint: leave out DISTINCT; or give it a window: WITH (window = '10 minutes')
SELECT DISTINCT color FROM listings;

-- error: listings is a stream and cannot be ordered or limited
--   line 1, column 24: SELECT * FROM listings ORDER BY price LIMIT 5
--                                             ^^^^^^^^
-- hint: leave out ORDER BY and LIMIT; or give it a window: WITH (window = '10 minutes')
SELECT * FROM listings ORDER BY price LIMIT 5;

-- Clauses that are not taken.
-- error: ORDER BY needs a LIMIT
--   line 1, column 22: SELECT * FROM stocks ORDER BY per
--                                           ^^^^^^^^
-- hint: add LIMIT n for the first n rows
SELECT * FROM stocks ORDER BY per;

-- error: LIMIT needs an ORDER BY
--   line 1, column 22: SELECT * FROM stocks LIMIT 5
--                                           ^^^^^
-- hint: say which rows come first: ORDER BY column
SELECT * FROM stocks LIMIT 5;

-- error: LIMIT must be above 0
--   line 1, column 41: SELECT * FROM stocks ORDER BY per LIMIT 0
--                                                              ^
-- hint: write LIMIT 10
SELECT * FROM stocks ORDER BY per LIMIT 0;

-- error: LIMIT must be above 0
--   line 1, column 41: SELECT * FROM stocks ORDER BY per LIMIT -1
--                                                              ^^
-- hint: write LIMIT 10
SELECT * FROM stocks ORDER BY per LIMIT -1;

-- error: LIMIT takes a whole number
--   line 1, column 41: SELECT * FROM stocks ORDER BY per LIMIT 2.5
--                                                              ^^^
-- hint: write LIMIT 10
SELECT * FROM stocks ORDER BY per LIMIT 2.5;

-- error: ORDER BY takes columns
--   line 1, column 31: SELECT * FROM stocks ORDER BY 1 LIMIT 5
--                                                    ^
-- hint: name a column of the table
SELECT * FROM stocks ORDER BY 1 LIMIT 5;

-- error: DISTINCT and ORDER BY cannot be combined
--   line 1, column 36: SELECT DISTINCT sector FROM stocks ORDER BY sector LIMIT 5
--                                                         ^^^^^^^^
-- hint: choose one of them
SELECT DISTINCT sector FROM stocks ORDER BY sector LIMIT 5;

-- error: an aggregate and DISTINCT cannot be combined
--   line 1, column 8: SELECT DISTINCT MIN(per) FROM stocks
--                            ^^^^^^^^
-- hint: choose one of them
SELECT DISTINCT MIN(per) FROM stocks;

-- error: an aggregate and ORDER BY cannot be combined
--   line 1, column 29: SELECT MIN(per) FROM stocks ORDER BY per LIMIT 1
--                                                  ^^^^^^^^
-- hint: choose one of them
SELECT MIN(per) FROM stocks ORDER BY per LIMIT 1;

-- error: WITH is not supported
--   line 1, column 1: WITH s AS (SELECT * FROM stocks) SELECT * FROM s
--                     ^^^^
-- hint: name the tables in FROM
WITH s AS (SELECT * FROM stocks) SELECT * FROM s;

-- error: a subquery cannot stand here
--   line 1, column 16: SELECT * FROM (SELECT * FROM stocks)
--                                     ^^^^^^
-- hint: read its table directly, and write its conditions in WHERE
SELECT * FROM (SELECT * FROM stocks);

-- error: FROM takes plain tables
--   line 1, column 15: SELECT * FROM stocks TABLESAMPLE (5 PERCENT)
--                                    ^^^^^^^^^^^^^^^^^^^^^
-- hint: write FROM table [AS alias]
SELECT * FROM stocks TABLESAMPLE (5 PERCENT);

-- error: FROM takes plain tables
--   line 1, column 15: SELECT * FROM db.stocks
--                                    ^^^^^^^^^
-- hint: write FROM table [AS alias]
SELECT * FROM db.stocks;

-- error: a subscription reads FROM a table or stream
--   line 1, column 1: SELECT 1
--                     ^^^^^^^^
-- hint: write SELECT ... FROM ...
SELECT 1;

-- error: a subscription is a SELECT
--   line 1, column 1: INSERT INTO stocks VALUES ('a')
--                     ^^^^^^
-- hint: change rows with engine.insert, update and delete
INSERT INTO stocks VALUES ('a');

-- error: a subscription is a SELECT
--   line 1, column 1: DELETE FROM stocks
--                     ^^^^^^
-- hint: change rows with engine.insert, update and delete
DELETE FROM stocks;

-- Syntax.
-- error: syntax error at the end of the text
--   line 1, column 26: SELECT * FROM stocks WHERE
--                                               ^
-- hint: write a condition after WHERE
SELECT * FROM stocks WHERE;

-- error: syntax error at the end of the text: expecting )
--   line 1, column 35: SELECT * FROM stocks WHERE (per > 5
--                                                        ^
-- hint: close the parenthesis
SELECT * FROM stocks WHERE (per > 5;

-- error: syntax error at '='
--   line 1, column 34: SELECT * FROM stocks WHERE per = = 5
--                                                       ^
SELECT * FROM stocks WHERE per = = 5;

-- error: syntax error at 'risk'
--   line 1, column 36: SELECT * FROM stocks WHERE per > 5 risk < 3
--                                                         ^^^^
SELECT * FROM stocks WHERE per > 5 risk < 3;

-- error: SELECT names nothing
--   line 1, column 1: SELECT FROM stocks
--                     ^^^^^^
-- hint: write SELECT * for all
SELECT FROM stocks;

-- error: syntax error at 'SELEC'
--   line 1, column 1: SELEC * FROM stocks
--                     ^^^^^
-- hint: did you mean SELECT?
SELEC * FROM stocks;

-- error: syntax error at 'FORM'
--   line 1, column 10: SELECT * FORM stocks
--                               ^^^^
-- hint: did you mean FROM?
SELECT * FORM stocks;

-- More that sqlglot reads and we do not take.
-- error: LIMIT takes a number alone
--   line 1, column 35: SELECT * FROM stocks ORDER BY per LIMIT 5 PERCENT
--                                                        ^^^^^
-- hint: write LIMIT 10
SELECT * FROM stocks ORDER BY per LIMIT 5 PERCENT;

-- error: LIMIT takes a number alone
--   line 1, column 35: SELECT * FROM stocks ORDER BY per LIMIT ALL
--                                                        ^^^^^
-- hint: write LIMIT 10
SELECT * FROM stocks ORDER BY per LIMIT ALL;

-- error: FETCH is not supported
--   line 1, column 35: SELECT * FROM stocks ORDER BY per FETCH FIRST 5 ROWS ONLY
--                                                        ^^^^^
-- hint: write LIMIT n
SELECT * FROM stocks ORDER BY per FETCH FIRST 5 ROWS ONLY;

-- error: column 'symbol' occurs twice in USING
--   line 1, column 50: SELECT * FROM stocks JOIN reviews USING (symbol, symbol)
--                                                                       ^^^^^^
-- hint: name it once
SELECT * FROM stocks JOIN reviews USING (symbol, symbol);

-- error: this condition is not supported
--   line 1, column 28: SELECT * FROM stocks WHERE symbol GLOB 'a*'
--                                                 ^^^^^^^^^^^^^^^^
-- hint: conditions are = != < <= > >=, BETWEEN, IN, LIKE, ILIKE, RLIKE, IS NULL, and their NOT
SELECT * FROM stocks WHERE symbol GLOB 'a*';

-- error: BETWEEN SYMMETRIC is not supported
--   line 1, column 28: SELECT * FROM stocks WHERE per BETWEEN SYMMETRIC 5 AND 3
--                                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write the smaller bound first
SELECT * FROM stocks WHERE per BETWEEN SYMMETRIC 5 AND 3;

-- Times no one means.
-- error: seen is a TIMESTAMP, and '2020-01-02 05:00+99:99' cannot be read as one
--   line 1, column 37: SELECT * FROM listings WHERE seen > '2020-01-02 05:00+99:99'
--                                                          ^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write it like '2013-01-31 05:00:00', perhaps with a zone such as +01:00
SELECT * FROM listings WHERE seen > '2020-01-02 05:00+99:99';

-- error: '20200102' is not a TIMESTAMP
--   line 1, column 47: SELECT * FROM listings WHERE seen > TIMESTAMP '20200102'
--                                                                    ^^^^^^^^^^
-- hint: write it like '2013-01-31 05:00:00', perhaps with a zone such as +01:00
SELECT * FROM listings WHERE seen > TIMESTAMP '20200102';

-- error: day is a DATE, and '2020-01-02 05:00' cannot be read as one
--   line 1, column 36: SELECT * FROM listings WHERE day = '2020-01-02 05:00'
--                                                         ^^^^^^^^^^^^^^^^^^
-- hint: write it like '2013-01-31'
SELECT * FROM listings WHERE day = '2020-01-02 05:00';

-- error: the interval is out of range
--   line 1, column 49: SELECT s.symbol FROM stocks s JOIN reviews r ON s.listed - r.at < INTERVAL '999999999' DAY
--                                                                      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: times differ by less than 10,000 years
SELECT s.symbol FROM stocks s JOIN reviews r ON s.listed - r.at < INTERVAL '999999999' DAY;

-- Options.
-- error: there is no option 'windw'
--   line 1, column 30: SELECT * FROM listings WITH (windw = '10 minutes')
--                                                   ^^^^^
-- hint: did you mean 'window'?
SELECT * FROM listings WITH (windw = '10 minutes');

-- error: there is no option 'colour'
--   line 1, column 30: SELECT * FROM listings WITH (colour = 'red')
--                                                   ^^^^^^
-- hint: options are window, time, late, absent, memory, policy, alpha, refresh, within, when, check, group, group_memory
SELECT * FROM listings WITH (colour = 'red');

-- error: a time span is text with a unit
--   line 1, column 39: SELECT * FROM listings WITH (window = 10)
--                                                            ^^
-- hint: write '10 seconds', or another unit
SELECT * FROM listings WITH (window = 10);

-- error: 'moons' is not a unit of time
--   line 1, column 39: SELECT * FROM listings WITH (window = '10 moons')
--                                                            ^^^^^^^^^^
-- hint: units are microseconds, milliseconds, seconds, minutes, hours, days, weeks
SELECT * FROM listings WITH (window = '10 moons');

-- error: the duration is below a microsecond
--   line 1, column 39: SELECT * FROM listings WITH (window = '0 seconds')
--                                                            ^^^^^^^^^^^
-- hint: write positive numbers with units, as in '10 minutes' or '1 hour 30 minutes'
SELECT * FROM listings WITH (window = '0 seconds');

-- error: option 'window' is given twice
--   line 1, column 48: SELECT * FROM listings WITH (window = '1 day', WINDOW = '2 days')
--                                                                     ^^^^^^
-- hint: give it once
SELECT * FROM listings WITH (window = '1 day', WINDOW = '2 days');

-- error: parameters are not supported in WITH
--   line 1, column 39: SELECT * FROM listings WITH (window = :span)
--                                                            ^
-- hint: write a text in quotes or a number above 0
SELECT * FROM listings WITH (window = :span);

-- error: expecting = after window
--   line 1, column 37: SELECT * FROM listings WITH (window '10 minutes')
--                                                          ^^^^^^^^^^^^
-- hint: write WITH (name = value, ...), as in WITH (window = '10 minutes')
SELECT * FROM listings WITH (window '10 minutes');

-- error: expecting ( after WITH
--   line 1, column 29: SELECT * FROM listings WITH window = '10 minutes'
--                                                  ^^^^^^
-- hint: write WITH (name = value, ...), as in WITH (window = '10 minutes')
SELECT * FROM listings WITH window = '10 minutes';

-- error: expecting , or ) after an option
--   line 1, column 50: SELECT * FROM listings WITH (window = '10 minutes'
--                                                                       ^
-- hint: write WITH (name = value, ...), as in WITH (window = '10 minutes')
SELECT * FROM listings WITH (window = '10 minutes';

-- error: expecting the name of an option
--   line 1, column 30: SELECT * FROM listings WITH ()
--                                                   ^
-- hint: write WITH (name = value, ...), as in WITH (window = '10 minutes')
SELECT * FROM listings WITH ();

-- error: WITH (...) ends a SELECT
--   line 1, column 48: SELECT * FROM listings WITH (window = '1 day') WHERE price > 5
--                                                                     ^^^^^
-- hint: write it after WHERE, ORDER BY and LIMIT
SELECT * FROM listings WITH (window = '1 day') WHERE price > 5;

-- error: WITH (...) occurs twice
--   line 1, column 48: SELECT * FROM listings WITH (window = '1 day') WITH (late = '1 second')
--                                                                     ^^^^
-- hint: write all options in one list
SELECT * FROM listings WITH (window = '1 day') WITH (late = '1 second');

-- error: late needs a window
--   line 1, column 30: SELECT * FROM listings WITH (late = '1 second')
--                                                   ^^^^^^^^^^^^^^^^^
-- hint: add window = '10 minutes', or leave it out
SELECT * FROM listings WITH (late = '1 second');

-- error: there is no TIMESTAMP column 'day' in listings
--   line 1, column 48: SELECT * FROM listings WITH (window = '1 day', time = 'day')
--                                                                     ^^^^^^^^^^^^
-- hint: its TIMESTAMP columns are seen
SELECT * FROM listings WITH (window = '1 day', time = 'day');

-- error: there is no TIMESTAMP column 'sean' in listings
--   line 1, column 48: SELECT * FROM listings WITH (window = '1 day', time = 'sean')
--                                                                     ^^^^^^^^^^^^^
-- hint: did you mean 'seen'?
SELECT * FROM listings WITH (window = '1 day', time = 'sean');

-- error: window is for streams, and the query reads tables
--   line 1, column 28: SELECT * FROM stocks WITH (window = '1 day')
--                                                 ^^^^^^^^^^^^^^^^
-- hint: leave it out: a table keeps its rows until they are deleted
SELECT * FROM stocks WITH (window = '1 day');

-- error: events is an open stream and has no windows
--   line 1, column 28: SELECT * FROM events WITH (window = '1 day')
--                                                 ^^^^^^^^^^^^^^^^
-- hint: declare its columns: CREATE STREAM events (name TYPE, ...)
SELECT * FROM events WITH (window = '1 day');

-- error: memory is for joins of streams
--   line 1, column 28: SELECT * FROM stocks WITH (memory = '64 MB')
--                                                 ^^^^^^^^^^^^^^^^
-- hint: leave it out
SELECT * FROM stocks WITH (memory = '64 MB');

-- error: 'MX' is not a unit of memory
--   line 1, column 78: SELECT * FROM listings a JOIN listings b ON a.color = b.color WITH (memory = '64 MX')
--                                                                                                   ^^^^^^^
-- hint: units are bytes, KB, MB, GB
SELECT * FROM listings a JOIN listings b ON a.color = b.color WITH (memory = '64 MX');

-- error: a number of rows is whole and above 0
--   line 1, column 78: SELECT * FROM listings a JOIN listings b ON a.color = b.color WITH (memory = 0.5)
--                                                                                                   ^^^
-- hint: write 10000, or an amount as in '64 MB'
SELECT * FROM listings a JOIN listings b ON a.color = b.color WITH (memory = 0.5);

-- error: there is no policy 'heb'
--   line 1, column 90: SELECT * FROM listings a JOIN listings b ON a.color = b.color WITH (memory = 5, policy = 'heb')
--                                                                                                               ^^^^^
-- hint: did you mean 'heeb'?
SELECT * FROM listings a JOIN listings b ON a.color = b.color WITH (memory = 5, policy = 'heb');

-- error: policy 'naive' is for refresh, not for memory
--   line 1, column 81: SELECT * FROM listings a JOIN listings b ON a.color = b.color WITH (memory = 5, policy = 'naive')
--                                                                                                      ^^^^^^^^^^^^^^^^
-- hint: policies of memory are heeb, prob, life, rand, lru, lfu, fifo
SELECT * FROM listings a JOIN listings b ON a.color = b.color WITH (memory = 5, policy = 'naive');

-- error: alpha is a number above 0
--   line 1, column 89: SELECT * FROM listings a JOIN listings b ON a.color = b.color WITH (memory = 5, alpha = 0)
--                                                                                                              ^
-- hint: leave it out, or write alpha = 'adaptive'
SELECT * FROM listings a JOIN listings b ON a.color = b.color WITH (memory = 5, alpha = 0);

-- error: within needs refresh
--   line 1, column 28: SELECT * FROM stocks WITH (within = '200 ms')
--                                                 ^^^^^^^^^^^^^^^^^
-- hint: add refresh = 'on demand', or leave it out
SELECT * FROM stocks WITH (within = '200 ms');

-- error: this is not a way to refresh
--   line 1, column 38: SELECT * FROM stocks WITH (refresh = 'never')
--                                                           ^^^^^^^
-- hint: write 'on demand', 'when' or 'every 10 seconds'
SELECT * FROM stocks WITH (refresh = 'never');

-- error: refresh = 'when' needs a condition
--   line 1, column 28: SELECT * FROM stocks WITH (refresh = 'when')
--                                                 ^^^^^^^^^^^^^^^^
-- hint: add when = 'changes > 1000'
SELECT * FROM stocks WITH (refresh = 'when');

-- error: this is not a duration
--   line 1, column 38: SELECT * FROM stocks WITH (refresh = 'every moon')
--                                                           ^^^^^^^^^^^^
-- hint: write positive numbers with units, as in '10 minutes' or '1 hour 30 minutes'
SELECT * FROM stocks WITH (refresh = 'every moon');

-- error: when is for refresh = 'when'
--   line 1, column 51: SELECT * FROM stocks WITH (refresh = 'on demand', when = 'changes > 5')
--                                                                        ^^^^^^^^^^^^^^^^^^^^
-- hint: leave it out
SELECT * FROM stocks WITH (refresh = 'on demand', when = 'changes > 5');

-- error: memory and refresh do not go together
--   line 1, column 51: SELECT * FROM stocks WITH (refresh = 'on demand', memory = 5)
--                                                                        ^^^^^^^^^^
-- hint: memory is for joins of streams, group_memory for refresh
SELECT * FROM stocks WITH (refresh = 'on demand', memory = 5);

-- error: alpha is for memory with policy 'heeb'
--   line 1, column 51: SELECT * FROM stocks WITH (refresh = 'on demand', alpha = 2)
--                                                                        ^^^^^^^^^
-- hint: leave it out
SELECT * FROM stocks WITH (refresh = 'on demand', alpha = 2);

-- error: the text is empty
--   line 1, column 59: SELECT * FROM stocks WITH (refresh = 'on demand', group = ' ')
--                                                                                ^^^
-- hint: write a value, or leave the option out
SELECT * FROM stocks WITH (refresh = 'on demand', group = ' ');

-- error: listings is a stream and cannot be aggregated
--   line 1, column 8: SELECT MIN(price) FROM listings WITH (refresh = 'on demand')
--                            ^^^^^^^^^^
-- hint: SELECT its columns; or give it a window: WITH (window = '10 minutes')
SELECT MIN(price) FROM listings WITH (refresh = 'on demand');

-- error: there is no measure 'change'
--   line 1, column 61: SELECT MIN(per) FROM stocks WITH (refresh = 'when', when = 'change > 5')
--                                                                                  ^^^^^^
-- hint: did you mean 'changes'?
SELECT MIN(per) FROM stocks WITH (refresh = 'when', when = 'change > 5');

-- error: age is a time span, with a unit
--   line 1, column 82: SELECT MIN(per) FROM stocks WITH (refresh = 'when', when = 'changes > 9 OR age > 5')
--                                                                                                       ^
-- hint: write 5 seconds
SELECT MIN(per) FROM stocks WITH (refresh = 'when', when = 'changes > 9 OR age > 5');

-- error: the answer has no column 'cheepest'
--   line 1, column 79: SELECT MIN(per) AS cheapest FROM stocks WITH (refresh = 'when', when = 'moved(cheepest) > 5 %')
--                                                                                                    ^^^^^^^^
-- hint: did you mean 'cheapest'?
SELECT MIN(per) AS cheapest FROM stocks WITH (refresh = 'when', when = 'moved(cheepest) > 5 %');

-- error: moved is for answers of one row
--   line 1, column 62: SELECT per FROM stocks WITH (refresh = 'when', when = 'moved(per) > 5 %')
--                                                                                   ^^^
-- hint: SELECT an aggregate, or count the rows that change: rows > 10
SELECT per FROM stocks WITH (refresh = 'when', when = 'moved(per) > 5 %');

-- Groups that are not taken.
-- error: per is not in GROUP BY
--   line 1, column 8: SELECT per FROM stocks GROUP BY sector
--                            ^^^
-- hint: add it to GROUP BY, or write an aggregate such as MAX(per)
SELECT per FROM stocks GROUP BY sector;

-- error: GROUP BY takes columns
--   line 1, column 54: SELECT sector, COUNT(*) FROM stocks GROUP BY ROLLUP (sector)
--                                                                           ^^^^^^
-- hint: name a column of the table
SELECT sector, COUNT(*) FROM stocks GROUP BY ROLLUP (sector);

-- error: this form of GROUP BY is not supported
--   line 1, column 37: SELECT sector, COUNT(*) FROM stocks GROUP BY ALL
--                                                          ^^^^^^^^
-- hint: name the columns: GROUP BY a, b
SELECT sector, COUNT(*) FROM stocks GROUP BY ALL;

-- error: SELECT has no item 3
--   line 1, column 46: SELECT sector, COUNT(*) FROM stocks GROUP BY 3
--                                                                   ^
-- hint: it has 2; or name a column
SELECT sector, COUNT(*) FROM stocks GROUP BY 3;

-- error: n is an aggregate, which has a value for each group
--   line 1, column 51: SELECT sector, COUNT(*) AS n FROM stocks GROUP BY n
--                                                                        ^
-- hint: compare it in HAVING
SELECT sector, COUNT(*) AS n FROM stocks GROUP BY n;

-- error: sector is not in GROUP BY
--   line 1, column 8: SELECT sector, COUNT(*) FROM stocks GROUP BY per + risk
--                            ^^^^^^
-- hint: add it to GROUP BY, or write an aggregate such as MAX(sector)
SELECT sector, COUNT(*) FROM stocks GROUP BY per + risk;

-- error: per is not in GROUP BY
--   line 1, column 60: SELECT sector, COUNT(*) FROM stocks GROUP BY sector HAVING per > 5
--                                                                                 ^^^
-- hint: add it to GROUP BY, or write an aggregate such as MAX(per)
SELECT sector, COUNT(*) FROM stocks GROUP BY sector HAVING per > 5;

-- error: SUM is for numbers, and symbol is a STRING
--   line 1, column 60: SELECT sector, COUNT(*) FROM stocks GROUP BY sector HAVING SUM(symbol) > 5
--                                                                                 ^^^^^^^^^^^
-- hint: use COUNT, MIN or MAX
SELECT sector, COUNT(*) FROM stocks GROUP BY sector HAVING SUM(symbol) > 5;

-- error: COUNT(*) is a BIGINT and cannot be compared with a STRING
--   line 1, column 71: SELECT sector, COUNT(*) FROM stocks GROUP BY sector HAVING COUNT(*) > 'a'
--                                                                                            ^^^
-- hint: numbers are written without quotes; names are quoted with backticks
SELECT sector, COUNT(*) FROM stocks GROUP BY sector HAVING COUNT(*) > 'a';

-- error: an aggregate cannot stand inside an expression
--   line 1, column 60: SELECT sector, COUNT(*) FROM stocks GROUP BY sector HAVING COUNT(*) > COUNT(per)
--                                                                                 ^^^^^^^^
-- hint: compute with it where the answer is read
SELECT sector, COUNT(*) FROM stocks GROUP BY sector HAVING COUNT(*) > COUNT(per);

-- error: HAVING needs groups
--   line 1, column 27: SELECT symbol FROM stocks HAVING symbol = 'x'
--                                                ^^^^^^
-- hint: write GROUP BY, or an aggregate in SELECT
SELECT symbol FROM stocks HAVING symbol = 'x';

-- error: SUM(DISTINCT ...) is not supported
--   line 1, column 8: SELECT SUM(DISTINCT per) FROM stocks
--                            ^^^^^^^^^^^^^^^^^
-- hint: COUNT(DISTINCT column) is
SELECT SUM(DISTINCT per) FROM stocks;

-- error: COUNT(DISTINCT ...) takes one column
--   line 1, column 8: SELECT COUNT(DISTINCT sector, symbol) FROM stocks
--                            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write one for each
SELECT COUNT(DISTINCT sector, symbol) FROM stocks;

-- error: there is no column 'pre' in stocks
--   line 1, column 31: SELECT COUNT(*) FILTER (WHERE pre > 5) FROM stocks
--                                                    ^^^
-- hint: did you mean 'per'?
SELECT COUNT(*) FILTER (WHERE pre > 5) FROM stocks;

-- error: listings is a stream and cannot be grouped
--   line 1, column 38: SELECT model, COUNT(*) FROM listings GROUP BY model
--                                                           ^^^^^^^^
-- hint: SELECT its columns; or give it a window: WITH (window = '10 minutes')
SELECT model, COUNT(*) FROM listings GROUP BY model;

-- error: GROUP BY and DISTINCT cannot be combined
--   line 1, column 8: SELECT DISTINCT sector FROM stocks GROUP BY sector
--                            ^^^^^^^^
-- hint: choose one of them
SELECT DISTINCT sector FROM stocks GROUP BY sector;

-- error: GROUP BY and ORDER BY cannot be combined
--   line 1, column 53: SELECT sector, COUNT(*) FROM stocks GROUP BY sector ORDER BY sector LIMIT 3
--                                                                          ^^^^^^^^
-- hint: choose one of them
SELECT sector, COUNT(*) FROM stocks GROUP BY sector ORDER BY sector LIMIT 3;

-- error: an aggregate is not supported in a condition
--   line 1, column 28: SELECT * FROM stocks WHERE COUNT(*) > 5
--                                                 ^^^^^^^^
-- hint: compare it in HAVING, after GROUP BY
SELECT * FROM stocks WHERE COUNT(*) > 5;

-- error: GROUP BY over a join of streams needs a window
--   line 1, column 77: SELECT symbol, COUNT(*) FROM listings l JOIN stocks s ON l.model = s.symbol GROUP BY symbol
--                                                                                                  ^^^^^^^^
-- hint: give it a window: WITH (window = '10 minutes')
SELECT symbol, COUNT(*) FROM listings l JOIN stocks s ON l.model = s.symbol GROUP BY symbol;

-- error: SUM(reviews.id) over groups cannot be deferred
--   line 1, column 86: SELECT sector, SUM(id) FROM stocks JOIN reviews USING (symbol) GROUP BY sector WITH (refresh = 'on demand')
--                                                                                                           ^^^^^^^^^^^^^^^^^^^^^
-- hint: sum a DOUBLE column, or leave refresh out
SELECT sector, SUM(id) FROM stocks JOIN reviews USING (symbol) GROUP BY sector WITH (refresh = 'on demand');

-- First rows of groups that are not taken.
-- error: QUALIFY takes ROW_NUMBER() compared with a number
--   line 1, column 22: SELECT * FROM stocks QUALIFY RANK() OVER (PARTITION BY sector ORDER BY per) <= 3
--                                           ^^^^^^^
-- hint: write QUALIFY ROW_NUMBER() OVER (PARTITION BY column ORDER BY column) <= 3
SELECT * FROM stocks QUALIFY RANK() OVER (PARTITION BY sector ORDER BY per) <= 3;

-- error: ROW_NUMBER is compared with a whole number: <= n, < n or = 1
--   line 1, column 86: SELECT * FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per) <= 0
--                                                                                                           ^
-- hint: write QUALIFY ROW_NUMBER() OVER (PARTITION BY column ORDER BY column) <= 3
SELECT * FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per) <= 0;

-- error: ROW_NUMBER is compared with a whole number: <= n, < n or = 1
--   line 1, column 85: SELECT * FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per) = 2
--                                                                                                          ^
-- hint: write QUALIFY ROW_NUMBER() OVER (PARTITION BY column ORDER BY column) <= 3
SELECT * FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per) = 2;

-- error: ROW_NUMBER needs an ORDER BY
--   line 1, column 30: SELECT * FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY sector) <= 3
--                                                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: say which rows come first: ROW_NUMBER() OVER (PARTITION BY a ORDER BY b)
SELECT * FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY sector) <= 3;

-- error: QUALIFY and ORDER BY cannot be combined
--   line 1, column 22: SELECT * FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per) <= 3 ORDER BY per LIMIT 2
--                                           ^^^^^^^
-- hint: choose one of them
SELECT * FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per) <= 3 ORDER BY per LIMIT 2;

-- error: a subquery cannot stand here
--   line 1, column 16: SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per) AS n FROM stocks) AS s WHERE n <= 3
--                                     ^^^^^^
-- hint: write QUALIFY ROW_NUMBER() OVER (...) <= 3; or name the columns, without the number
SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per) AS n FROM stocks) AS s WHERE n <= 3;

-- error: OFFSET needs ORDER BY and LIMIT
--   line 1, column 22: SELECT * FROM stocks OFFSET 5
--                                           ^^^^^^
-- hint: write both before it
SELECT * FROM stocks OFFSET 5;

-- error: OFFSET takes a whole number
--   line 1, column 43: SELECT * FROM stocks ORDER BY per LIMIT 5 OFFSET -1
--                                                                ^^^^^^
-- hint: write LIMIT 10 OFFSET 20
SELECT * FROM stocks ORDER BY per LIMIT 5 OFFSET -1;

-- Outer joins, subqueries, UNION ALL.
-- error: a condition between two tables must be combined with the others by AND
--   line 1, column 47: SELECT * FROM stocks s LEFT JOIN reviews r ON s.symbol = r.symbol OR r.rating > 5
--                                                                    ^^^^^^^^^^^^^^^^^^^
-- hint: move it out of OR and NOT
SELECT * FROM stocks s LEFT JOIN reviews r ON s.symbol = r.symbol OR r.rating > 5;

-- error: WHERE compares the two tables of an outer join
--   line 1, column 73: SELECT * FROM stocks s LEFT JOIN reviews r ON s.symbol = r.symbol WHERE s.per = r.rating
--                                                                                              ^^^^^^^^^^^^^^^^
-- hint: write it in ON; or, if rows without partner are not wanted, an inner JOIN
SELECT * FROM stocks s LEFT JOIN reviews r ON s.symbol = r.symbol WHERE s.per = r.rating;

-- error: USING is not for FULL JOIN
--   line 1, column 44: SELECT * FROM stocks s FULL JOIN reviews r USING (symbol)
--                                                                 ^^^^^
-- hint: write ON a.x = b.x, and select both columns
SELECT * FROM stocks s FULL JOIN reviews r USING (symbol);

-- error: an outer join joins two tables
--   line 1, column 24: SELECT * FROM stocks s LEFT JOIN reviews r USING (symbol) JOIN owners o ON o.symbol = s.symbol
--                                             ^^^^
-- hint: join no other table with them
SELECT * FROM stocks s LEFT JOIN reviews r USING (symbol) JOIN owners o ON o.symbol = s.symbol;

-- error: LEFT SEMI JOIN is not supported
--   line 1, column 24: SELECT * FROM stocks s LEFT SEMI JOIN reviews r ON s.symbol = r.symbol
--                                             ^^^^
-- hint: write WHERE EXISTS (SELECT ...)
SELECT * FROM stocks s LEFT SEMI JOIN reviews r ON s.symbol = r.symbol;

-- error: aggregates cannot be combined with an outer join
--   line 1, column 8: SELECT COUNT(*) FROM stocks s LEFT JOIN reviews r ON s.symbol = r.symbol
--                            ^^^^^^^^
-- hint: select its rows
SELECT COUNT(*) FROM stocks s LEFT JOIN reviews r ON s.symbol = r.symbol;

-- error: nothing joins reviews with stocks
--   line 1, column 32: SELECT * FROM stocks LEFT JOIN reviews ON TRUE
--                                                     ^^^^^^^
-- hint: add a condition such as a.x = b.x
SELECT * FROM stocks LEFT JOIN reviews ON TRUE;

-- error: l is a stream, and the events of an outer join need a window
--   line 1, column 34: SELECT * FROM stocks s LEFT JOIN listings l ON s.symbol = l.model
--                                                       ^^^^^^^^^^
-- hint: give it a window: WITH (window = '10 minutes')
SELECT * FROM stocks s LEFT JOIN listings l ON s.symbol = l.model;

-- error: a subquery cannot stand here
--   line 1, column 47: SELECT * FROM stocks WHERE per > 5 OR EXISTS (SELECT 1 FROM reviews)
--                                                                    ^^^^^^
-- hint: [NOT] EXISTS (SELECT ...) and x [NOT] IN (SELECT y ...) stand in WHERE, alone or beside AND
SELECT * FROM stocks WHERE per > 5 OR EXISTS (SELECT 1 FROM reviews);

-- error: a subquery cannot stand here
--   line 1, column 35: SELECT * FROM stocks WHERE per = (SELECT rating FROM reviews)
--                                                        ^^^^^^
-- hint: [NOT] EXISTS (SELECT ...) and x [NOT] IN (SELECT y ...) stand in WHERE, alone or beside AND
SELECT * FROM stocks WHERE per = (SELECT rating FROM reviews);

-- error: stocks.symbol is a STRING and reviews.rating a DOUBLE: they cannot be equal
--   line 1, column 28: SELECT * FROM stocks WHERE symbol IN (SELECT rating FROM reviews)
--                                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: compare columns of one kind
SELECT * FROM stocks WHERE symbol IN (SELECT rating FROM reviews);

-- error: the subquery of IN selects one column
--   line 1, column 46: SELECT * FROM stocks WHERE symbol IN (SELECT symbol, id FROM reviews)
--                                                                   ^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write EXISTS (SELECT 1 FROM t WHERE t.k = a.k) or x IN (SELECT y FROM t), alone or beside AND
SELECT * FROM stocks WHERE symbol IN (SELECT symbol, id FROM reviews);

-- error: a subquery selects no aggregates
--   line 1, column 43: SELECT * FROM stocks WHERE EXISTS (SELECT COUNT(*) FROM reviews)
--                                                                ^^^^^^^^
-- hint: write EXISTS (SELECT 1 FROM t WHERE t.k = a.k) or x IN (SELECT y FROM t), alone or beside AND
SELECT * FROM stocks WHERE EXISTS (SELECT COUNT(*) FROM reviews);

-- error: a subquery has no more than FROM and WHERE
--   line 1, column 58: SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM reviews LIMIT 1)
--                                                                               ^^^^^
-- hint: it selects FROM one table, with conditions in WHERE
SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM reviews LIMIT 1);

-- error: a subquery has no more than FROM and WHERE
--   line 1, column 60: SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM reviews r JOIN owners o ON r.symbol = o.symbol)
--                                                                                 ^^^^
-- hint: it selects FROM one table, with conditions in WHERE
SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM reviews r JOIN owners o ON r.symbol = o.symbol);

-- error: a subquery in a subquery is not supported
--   line 1, column 75: SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM reviews WHERE symbol IN (SELECT symbol FROM owners))
--                                                                                                ^^^^^^
-- hint: nest one level
SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM reviews WHERE symbol IN (SELECT symbol FROM owners));

-- error: this condition mixes two tables
--   line 1, column 93: SELECT * FROM stocks s WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.symbol = s.symbol AND (r.rating > 5 OR s.per > 5))
--                                                                                                                  ^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write conditions of each table for themselves, combined by AND
SELECT * FROM stocks s WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.symbol = s.symbol AND (r.rating > 5 OR s.per > 5));

-- error: there is no table 'z' in the query
--   line 1, column 79: SELECT * FROM stocks s WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.rating = z.per)
--                                                                                                    ^
-- hint: the query reads s
SELECT * FROM stocks s WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.rating = z.per);

-- error: listings is a stream, and the events of a subquery need a window
--   line 1, column 50: SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM listings WHERE model = symbol)
--                                                                       ^^^^^^^^
-- hint: give it a window: WITH (window = '10 minutes')
SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM listings WHERE model = symbol);

-- error: events is an open stream and cannot be in a subquery
--   line 1, column 50: SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM events)
--                                                                       ^^^^^^
-- hint: declare its columns: CREATE STREAM events (name TYPE, ...)
SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM events);

-- error: a subquery stands beside one table
--   line 1, column 29: SELECT * FROM stocks s JOIN reviews r USING (symbol) WHERE EXISTS (SELECT 1 FROM owners)
--                                                  ^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write FROM one table, and the other one as EXISTS (SELECT 1 FROM b WHERE b.k = a.k)
SELECT * FROM stocks s JOIN reviews r USING (symbol) WHERE EXISTS (SELECT 1 FROM owners);

-- error: DISTINCT cannot be combined with a subquery
--   line 1, column 8: SELECT DISTINCT sector FROM stocks WHERE symbol IN (SELECT symbol FROM reviews)
--                            ^^^^^^^^
-- hint: select its rows
SELECT DISTINCT sector FROM stocks WHERE symbol IN (SELECT symbol FROM reviews);

-- error: refresh cannot be combined with a subquery
--   line 1, column 73: SELECT * FROM stocks WHERE symbol IN (SELECT symbol FROM reviews) WITH (refresh = 'on demand')
--                                                                                              ^^^^^^^
-- hint: select its rows
SELECT * FROM stocks WHERE symbol IN (SELECT symbol FROM reviews) WITH (refresh = 'on demand');

-- error: WITH (...) ends the whole query
--   line 1, column 58: SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM reviews WITH (window = '5 minutes'))
--                                                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write it after the last parenthesis
SELECT * FROM stocks WHERE EXISTS (SELECT 1 FROM reviews WITH (window = '5 minutes'));

-- error: UNION is not supported
--   line 1, column 27: SELECT symbol FROM stocks UNION SELECT symbol FROM reviews
--                                                ^^^^^
-- hint: write UNION ALL, and drop rows that occur twice when you read them
SELECT symbol FROM stocks UNION SELECT symbol FROM reviews;

-- error: EXCEPT is not supported
--   line 1, column 27: SELECT symbol FROM stocks EXCEPT SELECT symbol FROM reviews
--                                                ^^^^^^
-- hint: subscribe to each part
SELECT symbol FROM stocks EXCEPT SELECT symbol FROM reviews;

-- error: this SELECT has 2 columns, and the first one 1 column
--   line 1, column 44: SELECT symbol FROM stocks UNION ALL SELECT symbol, id FROM reviews
--                                                                 ^^^^^^
-- hint: select as many in each branch of UNION ALL
SELECT symbol FROM stocks UNION ALL SELECT symbol, id FROM reviews;

-- error: id is a BIGINT, and symbol of the first SELECT a STRING
--   line 1, column 44: SELECT symbol FROM stocks UNION ALL SELECT id FROM reviews
--                                                                 ^^
-- hint: the branches of UNION ALL have columns of the same types
SELECT symbol FROM stocks UNION ALL SELECT id FROM reviews;

-- error: UNION ALL has no order
--   line 1, column 64: SELECT symbol FROM stocks UNION ALL SELECT symbol FROM reviews ORDER BY symbol LIMIT 3
--                                                                                     ^^^^^^^^
-- hint: leave out ORDER BY and LIMIT
SELECT symbol FROM stocks UNION ALL SELECT symbol FROM reviews ORDER BY symbol LIMIT 3;

-- error: options of a UNION ALL are at its end
--   line 1, column 27: SELECT symbol FROM stocks WITH (window = '5 minutes') UNION ALL SELECT symbol FROM reviews
--                                                ^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write it once, after the last SELECT
SELECT symbol FROM stocks WITH (window = '5 minutes') UNION ALL SELECT symbol FROM reviews;

-- error: window is for streams, and the query reads tables
--   line 1, column 70: SELECT symbol FROM stocks UNION ALL SELECT symbol FROM reviews WITH (window = '5 minutes')
--                                                                                           ^^^^^^^^^^^^^^^^^^^^
-- hint: leave it out
SELECT symbol FROM stocks UNION ALL SELECT symbol FROM reviews WITH (window = '5 minutes');

-- error: refresh is not for UNION ALL
--   line 1, column 70: SELECT symbol FROM stocks UNION ALL SELECT symbol FROM reviews WITH (refresh = 'on demand')
--                                                                                           ^^^^^^^^^^^^^^^^^^^^^
-- hint: subscribe to each branch
SELECT symbol FROM stocks UNION ALL SELECT symbol FROM reviews WITH (refresh = 'on demand');

-- error: * of an open stream is not for UNION ALL
--   line 1, column 8: SELECT * FROM events UNION ALL SELECT symbol FROM stocks
--                            ^
-- hint: name attributes
SELECT * FROM events UNION ALL SELECT symbol FROM stocks;

-- error: absent is for the distinct keys of one stream
--   line 1, column 56: SELECT model FROM listings WITH (window = '5 minutes', absent = '1 day')
--                                                                             ^^^^^^^^^^^^^^^^
-- hint: write SELECT DISTINCT model FROM listings; for keys of a table, NOT EXISTS (SELECT ...)
SELECT model FROM listings WITH (window = '5 minutes', absent = '1 day');

-- error: absent needs a window
--   line 1, column 43: SELECT DISTINCT model FROM listings WITH (absent = '1 day')
--                                                                ^^^^^^^^^^^^^^^^
-- hint: add window = '5 minutes'
SELECT DISTINCT model FROM listings WITH (absent = '1 day');

-- error: absent is not longer than the window
--   line 1, column 65: SELECT DISTINCT model FROM listings WITH (window = '5 minutes', absent = '5 minutes')
--                                                                                      ^^^^^^^^^^^^^^^^^^^^
-- hint: it counts from the last event; write a longer time, or absent = 'forever'
SELECT DISTINCT model FROM listings WITH (window = '5 minutes', absent = '5 minutes');

-- error: window is for streams, and the query reads tables
--   line 1, column 42: SELECT DISTINCT symbol FROM stocks WITH (window = '5 minutes', absent = 'forever')
--                                                               ^^^^^^^^^^^^^^^^^^^^
-- hint: leave it out: a table keeps its rows until they are deleted
SELECT DISTINCT symbol FROM stocks WITH (window = '5 minutes', absent = 'forever');

-- error: expecting BY after FOLLOWED
--   line 1, column 41: SELECT a.model FROM listings a FOLLOWED listings b ON a.model = b.model WITHIN '5 minutes'
--                                                              ^^^^^^^^
-- hint: write a FOLLOWED BY b ON ... WITHIN '5 minutes'
SELECT a.model FROM listings a FOLLOWED listings b ON a.model = b.model WITHIN '5 minutes';

-- error: a sequence needs WITHIN
--   line 1, column 32: SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model
--                                                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write FROM a FOLLOWED BY b ON a.k = b.k WITHIN '5 minutes'
SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model;

-- error: expecting a time in quotes after WITHIN
--   line 1, column 83: SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model WITHIN 5
--                                                                                                        ^
-- hint: write WITHIN '5 minutes'
SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model WITHIN 5;

-- error: this is not a duration
--   line 1, column 83: SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model WITHIN 'soon'
--                                                                                                        ^^^^^^
-- hint: write positive numbers with units, as in '10 minutes' or '1 hour 30 minutes'
SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model WITHIN 'soon';

-- error: nothing joins b with a
--   line 1, column 44: SELECT a.model FROM listings a FOLLOWED BY listings b WITHIN '5 minutes'
--                                                                 ^^^^^^^^^^
-- hint: add a condition such as a.x = b.x
SELECT a.model FROM listings a FOLLOWED BY listings b WITHIN '5 minutes';

-- error: b is a table; steps are events
--   line 1, column 44: SELECT a.model FROM listings a FOLLOWED BY stocks b ON a.model = b.symbol WITHIN '5 minutes'
--                                                                 ^^^^^^^^
-- hint: join it beside the stream of a step in a subscription of its own, or write FROM a FOLLOWED BY b ON a.k = b.k WITHIN '5 minutes'
SELECT a.model FROM listings a FOLLOWED BY stocks b ON a.model = b.symbol WITHIN '5 minutes';

-- error: a sequence needs a key that all steps have
--   line 1, column 32: SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model FOLLOWED BY listings c ON b.color = c.color WITHIN '5 minutes'
--                                                     ^^^^^^^^
-- hint: connect one column of each step: a.user = b.user AND b.user = c.user
SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model FOLLOWED BY listings c ON b.color = c.color WITHIN '5 minutes';

-- error: this condition mixes two steps
--   line 1, column 95: SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model WITHIN '5 minutes' WHERE a.price < 5 OR b.price < 5
--                                                                                                                    ^^^^^
-- hint: write conditions of each step for themselves, combined by AND
SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model WITHIN '5 minutes' WHERE a.price < 5 OR b.price < 5;

-- error: steps are connected by = alone
--   line 1, column 32: SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model AND b.price > a.price WITHIN '5 minutes'
--                                                     ^^^^^^^^
-- hint: write FROM a FOLLOWED BY b ON a.k = b.k WITHIN '5 minutes'
SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model AND b.price > a.price WITHIN '5 minutes';

-- error: an aggregate cannot be combined with a sequence
--   line 1, column 8: SELECT COUNT(*) FROM listings a FOLLOWED BY listings b ON a.model = b.model WITHIN '5 minutes'
--                            ^^^^^^^^
-- hint: select columns of its steps
SELECT COUNT(*) FROM listings a FOLLOWED BY listings b ON a.model = b.model WITHIN '5 minutes';

-- error: window is not for sequences
--   line 1, column 101: SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model WITHIN '5 minutes' WITH (window = '5 minutes')
--                                                                                                                           ^^^^^^
-- hint: WITHIN says all
SELECT a.model FROM listings a FOLLOWED BY listings b ON a.model = b.model WITHIN '5 minutes' WITH (window = '5 minutes');

-- error: a sequence has at most 5 steps
--   line 1, column 180: ...  listings c USING (model) FOLLOWED BY listings d USING (model) FOLLOWED BY listings e USING (model) FOLLOWED BY listings f USING (model) WITHIN '5 minutes'
--                                                                                                                               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: drop a step
SELECT a.model FROM listings a FOLLOWED BY listings b USING (model) FOLLOWED BY listings c USING (model) FOLLOWED BY listings d USING (model) FOLLOWED BY listings e USING (model) FOLLOWED BY listings f USING (model) WITHIN '5 minutes';

-- error: a sequence has no other joins
--   line 1, column 37: SELECT a.model FROM listings a JOIN stocks s ON a.model = s.symbol FOLLOWED BY listings b ON a.model = b.model WITHIN '5 minutes'
--                                                          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write FROM a FOLLOWED BY b ON a.k = b.k WITHIN '5 minutes'
SELECT a.model FROM listings a JOIN stocks s ON a.model = s.symbol FOLLOWED BY listings b ON a.model = b.model WITHIN '5 minutes';

-- error: events is an open stream and cannot be joined
--   line 1, column 21: SELECT a.model FROM events a FOLLOWED BY events b ON a.model = b.model WITHIN '5 minutes'
--                                          ^^^^^^^^
-- hint: declare its columns: CREATE STREAM events (name TYPE, ...)
SELECT a.model FROM events a FOLLOWED BY events b ON a.model = b.model WITHIN '5 minutes';

-- Expressions.
-- error: + does not take DATE and DOUBLE
--   line 1, column 30: SELECT * FROM listings WHERE day + 1.5 > day
--                                                   ^^^^^^^^^
-- hint: add numbers, or days or an INTERVAL to a time; || puts texts together
SELECT * FROM listings WHERE day + 1.5 > day;

-- error: + does not take DOUBLE and BOOLEAN
--   line 1, column 30: SELECT * FROM listings WHERE price + sold > 5
--                                                   ^^^^^^^^^^^^
-- hint: add numbers, or days or an INTERVAL to a time; || puts texts together
SELECT * FROM listings WHERE price + sold > 5;

-- error: there is no function flor
--   line 1, column 30: SELECT * FROM listings WHERE flor(price) = 5
--                                                   ^^^^^^^^^^^
-- hint: did you mean 'floor'?
SELECT * FROM listings WHERE flor(price) = 5;

-- error: lower takes 1 argument, not 2
--   line 1, column 30: SELECT * FROM listings WHERE lower(model, 'x') = 'a'
--                                                   ^^^^^^^^^^^^^^^^^
-- hint: convert a part with CAST(... AS type)
SELECT * FROM listings WHERE lower(model, 'x') = 'a';

-- error: (price * 2) is a DOUBLE and cannot be compared with a STRING
--   line 1, column 42: SELECT * FROM listings WHERE price * 2 = 'x'
--                                                               ^^^
-- hint: numbers are written without quotes; names are quoted with backticks
SELECT * FROM listings WHERE price * 2 = 'x';

-- error: WHEN takes a condition, not a DOUBLE
--   line 1, column 30: SELECT * FROM listings WHERE CASE WHEN price THEN 1 ELSE 2 END = 1
--                                                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: convert a part with CAST(... AS type)
SELECT * FROM listings WHERE CASE WHEN price THEN 1 ELSE 2 END = 1;

-- error: BOOLEAN and DOUBLE have no common type
--   line 1, column 30: SELECT * FROM listings WHERE coalesce(sold, price) = 5
--                                                   ^^^^^^^^^^^^^^^^^^^^^
-- hint: convert a part with CAST(... AS type)
SELECT * FROM listings WHERE coalesce(sold, price) = 5;

-- error: DOUBLE and STRING have no common type
--   line 1, column 30: SELECT * FROM listings WHERE greatest(price, model) > 5
--                                                   ^^^^^^^^^^^^^^^^^^^^^^
-- hint: convert a part with CAST(... AS type)
SELECT * FROM listings WHERE greatest(price, model) > 5;

-- error: CAST to DECIMAL(20, 2) is not supported
--   line 1, column 30: SELECT * FROM listings WHERE CAST(price AS DECIMAL(20, 2)) > 5
--                                                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: DECIMAL(p,s) has at most 18 digits in all, s of them behind the point
SELECT * FROM listings WHERE CAST(price AS DECIMAL(20, 2)) > 5;

-- error: a DATE cannot be cast to BIGINT
--   line 1, column 30: SELECT * FROM listings WHERE CAST(day AS BIGINT) > 5
--                                                   ^^^^^^^^^^^^^^^^^^^
-- hint: convert a part with CAST(... AS type)
SELECT * FROM listings WHERE CAST(day AS BIGINT) > 5;

-- error: CENTURY is not a unit of an interval
--   line 1, column 37: SELECT * FROM listings WHERE seen - INTERVAL '5' CENTURY > day
--                                                          ^^^^^^^^^^^^^^^^^^^^
-- hint: write INTERVAL '5' MINUTE; units are MICROSECOND to WEEK, MONTH and YEAR
SELECT * FROM listings WHERE seen - INTERVAL '5' CENTURY > day;

-- error: FORTNIGHT is no part of a time
--   line 1, column 30: SELECT * FROM listings WHERE extract(fortnight FROM seen) = 2
--                                                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
SELECT * FROM listings WHERE extract(fortnight FROM seen) = 2;

-- error: abs takes 1 argument, not 2
--   line 1, column 30: SELECT * FROM listings WHERE abs(price, 2) + foo(price) > 5
--                                                   ^^^^^^^^^^^^^
-- hint: convert a part with CAST(... AS type)
SELECT * FROM listings WHERE abs(price, 2) + foo(price) > 5;

-- error: the current time is not a constant of a subscription
--   line 1, column 37: SELECT * FROM listings WHERE seen > now() - INTERVAL '1' HOUR
--                                                          ^^^^^
-- hint: write the time itself, as in TIMESTAMP '2025-12-31 23:59:59'
SELECT * FROM listings WHERE seen > now() - INTERVAL '1' HOUR;

-- error: parameters are supported only in templates
--   line 1, column 38: SELECT * FROM listings WHERE price * :factor > 5
--                                                           ^^^^^^^
-- hint: write the value, or use subscribe_many
SELECT * FROM listings WHERE price * :factor > 5;

-- error: a condition is expected here, not a DOUBLE
--   line 1, column 30: SELECT * FROM listings WHERE price + 1
--                                                   ^^^^^^^^^
-- hint: compare it with a constant
SELECT * FROM listings WHERE price + 1;

-- error: a column is expected here, not a constant
--   line 1, column 8: SELECT 1 + 1 FROM listings
--                            ^^^^^
-- hint: leave it out: a delta names its subscription, and a subscription may have a subscriber
SELECT 1 + 1 FROM listings;

-- error: two columns of the answer are called 'price'
--   line 1, column 41: SELECT model, price * storage AS price, price FROM listings
--                                                              ^^^^^
-- hint: give one an alias: AS name
SELECT model, price * storage AS price, price FROM listings;

-- error: SUM is for numbers, and (lower(symbol)) is a STRING
--   line 1, column 8: SELECT SUM(lower(symbol)) FROM stocks
--                            ^^^^^^^^^^^^^^^^^^
-- hint: use COUNT, MIN or MAX
SELECT SUM(lower(symbol)) FROM stocks;

-- error: (per + 1) is not in GROUP BY
--   line 1, column 8: SELECT sector, per + 1 FROM stocks GROUP BY sector
--                            ^^^^^^
-- hint: add it to GROUP BY, or write an aggregate such as MAX((per + 1))
SELECT sector, per + 1 FROM stocks GROUP BY sector;

-- error: exists cannot stand inside an expression
--   line 1, column 28: SELECT * FROM events WHERE exists(tags, t -> t = 'new') = (a > b)
--                                                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
-- hint: write it as a condition beside AND
SELECT * FROM events WHERE exists(tags, t -> t = 'new') = (a > b);

-- error: a condition cannot be compared
--   line 1, column 30: SELECT * FROM listings WHERE 1 < price < 5
--                                                   ^^^^^^^^^
-- hint: join conditions by AND
SELECT * FROM listings WHERE 1 < price < 5;

-- error: a condition cannot be compared
--   line 1, column 30: SELECT * FROM listings WHERE color = 'red' = sold
--                                                   ^^^^^^^^^^^^^
-- hint: join conditions by AND
SELECT * FROM listings WHERE color = 'red' = sold;

-- Sizes, defaults and more columns.
-- error: 'INT64' is not a type here
--   line 1, column 19: CREATE TABLE t (a INT64 PRIMARY KEY)
--                                        ^^^^^
-- hint: write BIGINT
CREATE TABLE t (a INT64 PRIMARY KEY);

-- error: 'DECIMAL(20, 2)' is not a type here
--   line 1, column 41: CREATE TABLE t (a BIGINT PRIMARY KEY, b DECIMAL(20, 2))
--                                                              ^^^^^^^^^^^^^^
-- hint: DECIMAL(p,s) has at most 18 digits in all, s of them behind the point; or write DOUBLE
CREATE TABLE t (a BIGINT PRIMARY KEY, b DECIMAL(20, 2));

-- error: 'abc' is longer than VARCHAR(2)
--   line 1, column 60: CREATE TABLE t (a BIGINT PRIMARY KEY, b VARCHAR(2) DEFAULT 'abc')
--                                                                                 ^^^^^
-- hint: leave DEFAULT out
CREATE TABLE t (a BIGINT PRIMARY KEY, b VARCHAR(2) DEFAULT 'abc');

-- error: a default is a constant
--   line 1, column 56: CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT DEFAULT a)
--                                                                             ^
-- hint: put text in quotes
CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT DEFAULT a);

-- error: 'x' is not a BIGINT
--   line 1, column 56: CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT DEFAULT 'x')
--                                                                             ^^^
-- hint: write a BIGINT, or leave DEFAULT out
CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT DEFAULT 'x');

-- error: a column that is NOT NULL has no default NULL
--   line 1, column 65: CREATE TABLE t (a BIGINT PRIMARY KEY, b STRING NOT NULL DEFAULT NULL)
--                                                                                      ^^^^
-- hint: leave DEFAULT out
CREATE TABLE t (a BIGINT PRIMARY KEY, b STRING NOT NULL DEFAULT NULL);

-- error: expecting NULL after NOT
--   line 1, column 51: CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT NOT)
--                                                                        ^
-- hint: write NOT NULL
CREATE TABLE t (a BIGINT PRIMARY KEY, b BIGINT NOT);

-- error: expecting a number
--   line 1, column 49: CREATE TABLE t (a BIGINT PRIMARY KEY, b VARCHAR(x))
--                                                                      ^
-- hint: write VARCHAR(20)
CREATE TABLE t (a BIGINT PRIMARY KEY, b VARCHAR(x));

-- Numbers with fixed digits.
CREATE TABLE bills (id BIGINT PRIMARY KEY, amount DECIMAL(9,2), share DECIMAL(5,4), note STRING);

-- error: amount is a DECIMAL(9,2) and cannot be compared with a STRING
--   line 1, column 36: SELECT * FROM bills WHERE amount = '5'
--                                                         ^^^
-- hint: numbers are written without quotes; names are quoted with backticks
SELECT * FROM bills WHERE amount = '5';

-- error: 'x' is not a DECIMAL(5,2)
--   line 1, column 43: SELECT * FROM bills WHERE amount + note = CAST('x' AS DECIMAL(5,2))
--                                                                ^^^^^^^^^^^^^^^^^^^^^^^^^
SELECT * FROM bills WHERE amount + note = CAST('x' AS DECIMAL(5,2));

-- error: a.amount is a DECIMAL(9,2), and a band takes none
--   line 1, column 39: SELECT * FROM bills a JOIN bills b ON a.amount < b.amount
--                                                            ^^^^^^^^^^^^^^^^^^^
-- hint: write CAST(a.amount AS DOUBLE) in it, or compare after another join condition
SELECT * FROM bills a JOIN bills b ON a.amount < b.amount;

-- error: a DECIMAL(9,2) cannot be cast to DATE
--   line 1, column 27: SELECT * FROM bills WHERE CAST(amount AS DATE) = DATE '2024-01-01'
--                                                ^^^^^^^^^^^^^^^^^^^^
-- hint: convert a part with CAST(... AS type)
SELECT * FROM bills WHERE CAST(amount AS DATE) = DATE '2024-01-01';

-- error: 1234.5 has more digits than DECIMAL(5,2)
--   line 1, column 72: CREATE TABLE wrong (id BIGINT PRIMARY KEY, amount DECIMAL(5,2) DEFAULT 1234.5)
--                                                                                             ^^^^^^
-- hint: write a DECIMAL(5,2), or leave DEFAULT out
CREATE TABLE wrong (id BIGINT PRIMARY KEY, amount DECIMAL(5,2) DEFAULT 1234.5);

-- Conditions on joined rows.
-- error: an expression is about the columns of one table
--   line 1, column 8: SELECT s.per * r.rating AS x FROM stocks s JOIN reviews r ON s.symbol = r.symbol
--                            ^^^^^^^^^^^^^^^^
-- hint: compute a part of each table by itself, and compare the parts
SELECT s.per * r.rating AS x FROM stocks s JOIN reviews r ON s.symbol = r.symbol;

-- error: only + and - of columns and constants make a band
--   line 1, column 71: SELECT * FROM stocks s LEFT JOIN reviews r ON s.symbol = r.symbol AND s.per * r.rating > 5
--                                                                                            ^^^^^^^^^^^^^^^^
-- hint: a band is like: a.x - b.y BETWEEN -5 AND 10
SELECT * FROM stocks s LEFT JOIN reviews r ON s.symbol = r.symbol AND s.per * r.rating > 5;

-- error: (s.per + r.symbol) is a DOUBLE and cannot be compared with a DATE
--   line 1, column 92: SELECT * FROM stocks s JOIN reviews r ON s.symbol = r.symbol WHERE s.per + r.symbol > DATE '2024-01-01'
--                                                                                                                 ^^^^^^^^^^^^
SELECT * FROM stocks s JOIN reviews r ON s.symbol = r.symbol WHERE s.per + r.symbol > DATE '2024-01-01';

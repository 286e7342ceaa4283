-- Supported subscriptions, each with its shape and its conditions in normal form.
CREATE TABLE stocks (symbol STRING, per DOUBLE, risk DOUBLE, sector STRING, listed DATE, PRIMARY KEY (symbol));

CREATE TABLE reviews (id BIGINT PRIMARY KEY, symbol STRING, rating DOUBLE, at TIMESTAMP, public BOOLEAN);

CREATE TABLE owners (owner STRING, symbol STRING, shares LONG, since DATE, PRIMARY KEY (owner, symbol));

CREATE TABLE `unit prices` (`unit id` BIGINT, `price, in €` DOUBLE, `order` STRING, PRIMARY KEY (`unit id`));

CREATE STREAM listings (model STRING, price DOUBLE, color STRING, storage BIGINT, sold BOOLEAN, day DATE, seen TIMESTAMP);

CREATE STREAM events;

CREATE STREAM alarms (level BIGINT, room STRING) RETAIN '1 hour 30 minutes';

CREATE STREAM lately RETAIN '0.5 seconds';

CREATE TABLE pictures (id BIGINT, score DOUBLE, photo STRING, PRIMARY KEY (id)) PAYLOAD (photo);

-- Filters.
-- shape: filter
-- normal: events: item.brand = 'acme' AND item.`unit price` > 5
SELECT * FROM events WHERE item.brand = 'acme' AND item['unit price'] > 5;

-- shape: filter
-- normal: events: typeof(item.sizes) = 'array' AND typeof(color) IS NULL
SELECT item.brand, tags[0] AS first FROM events WHERE typeof(item.sizes) = 'array' AND color IS MISSING;

-- shape: filter
-- normal: events: NOT exists(tags, e1 -> e1 = 'new') IS NULL OR (exists(items, e1 -> e1.brand = 'acme' AND e1.price > 5) IS NULL AND typeof(items) = 'array')
SELECT * FROM events WHERE array_contains(tags, 'new') OR NOT exists(items, i -> i.brand = 'acme' AND i.price > 5);

-- shape: filter
-- normal: events: NOT exists(items[*].sizes[*], e1 -> e1 BETWEEN 3 AND 5) IS NULL AND name ILIKE 'A%'
SELECT * FROM events WHERE exists(items[*].sizes[*], s -> s BETWEEN 3 AND 5) AND name ILIKE 'A%';

-- shape: filter
-- normal: events: NOT exists(all_values(), e1 -> e1 ILIKE '%error%') IS NULL
SELECT * FROM events WHERE exists(all_values(), v -> v ILIKE '%error%');

-- shape: filter
-- normal: every row
SELECT * FROM listings;

-- shape: filter
-- normal: alarms: level >= 3
SELECT room FROM alarms WHERE level >= 3;

-- shape: filter
-- normal: lately: level >= 3
SELECT * FROM lately WHERE level >= 3;

-- shape: filter
-- normal: listings: (model = 'x5' AND price <= 580 AND color IN ('blue', 'red')) OR (model = 'x5' AND price <= 580 AND storage >= 64)
SELECT * FROM listings WHERE model = 'x5' AND price <= 580 AND (color IN ('red','blue') OR storage >= 64);

-- shape: filter
-- normal: listings: color = 'red'
SELECT MODEL, Price AS euros FROM Listings WHERE COLOR = 'red';

-- shape: join
-- normal: l.symbol = owners.symbol
SELECT l.*, owner FROM stocks AS l JOIN owners USING (symbol) WHERE 1 = 1;

-- shape: filter
-- normal: s: per > 5
SELECT symbol, per FROM stocks s WHERE s.per > 5;

-- shape: filter
-- normal: unit prices: `order` != 'it\'s'
SELECT `unit id`, `price, in €` FROM `unit prices` WHERE `order` != 'it''s';

-- shape: filter
-- normal: listings: price <= 580 AND storage >= 4
SELECT * FROM listings WHERE 580 >= price AND 3 < storage;

-- shape: filter
-- normal: listings: price != 5
SELECT * FROM listings WHERE price <> 5;

-- shape: filter
-- normal: listings: price >= 5 AND color != 'red'
SELECT * FROM listings WHERE NOT (price < 5 OR color = 'red');

-- shape: filter
-- normal: listings: price >= 5
SELECT * FROM listings WHERE NOT NOT price >= 5;

-- shape: filter
-- normal: listings: NOT price BETWEEN 5 AND 9
SELECT * FROM listings WHERE NOT price BETWEEN 5 AND 9;

-- shape: filter
-- normal: listings: NOT price IS NULL
SELECT * FROM listings WHERE price NOT BETWEEN 9 AND 5;

-- shape: filter
-- normal: listings: NOT color IN ('blue', 'green', 'red')
SELECT * FROM listings WHERE color NOT IN ('red', 'blue') AND color != 'green';

-- shape: filter
-- normal: listings: FALSE
-- warning: this query can never match: its conditions contradict each other
SELECT * FROM listings WHERE color NOT IN ('red', NULL);

-- shape: filter
-- normal: listings: color = 'red'
SELECT * FROM listings WHERE color IN ('red', NULL, 'red');

-- shape: filter
-- normal: listings: FALSE
-- warning: this query can never match: its conditions contradict each other
SELECT * FROM listings WHERE price BETWEEN NULL AND 5;

-- shape: filter
-- normal: listings: price > 5
SELECT * FROM listings WHERE NOT price BETWEEN NULL AND 5;

-- shape: filter
-- normal: listings: color IS NULL OR NOT storage IS NULL
SELECT * FROM listings WHERE color IS NULL OR storage IS NOT NULL;

-- shape: filter
-- normal: every row
SELECT * FROM listings WHERE color IS NULL OR color IS NOT NULL;

-- Ranges of one column are put together.
-- shape: filter
-- normal: listings: price BETWEEN 3 AND 5
SELECT * FROM listings WHERE price >= 3 AND price <= 5;

-- shape: filter
-- normal: listings: price > 7
SELECT * FROM listings WHERE price > 3 AND price > 7 AND price IS NOT NULL;

-- shape: filter
-- normal: listings: price = 3
SELECT * FROM listings WHERE price IN (1, 2, 3, 4) AND price BETWEEN 2 AND 3.5 AND price != 2;

-- shape: filter
-- normal: listings: price < 5 OR price IN (7, 8)
SELECT * FROM listings WHERE price < 3 OR price < 5 OR price = 7 OR price = 8;

-- shape: filter
-- normal: listings: NOT price IS NULL
SELECT * FROM listings WHERE price < 3 OR price >= 3;

-- shape: filter
-- normal: listings: price != 3
SELECT * FROM listings WHERE price < 3 OR price > 3;

-- shape: filter
-- normal: listings: price IN (3, 4)
SELECT * FROM listings WHERE price = 3 OR price = 3.0 OR price = 4;

-- shape: filter
-- normal: listings: storage BETWEEN 3 AND 4
SELECT * FROM listings WHERE storage > 2.5 AND storage < 4.5;

-- shape: filter
-- normal: listings: FALSE
-- warning: this query can never match: its conditions contradict each other
SELECT * FROM listings WHERE storage >= 9007199254740993 AND storage <= 9007199254740993.0;

-- shape: filter
-- normal: listings: NOT storage IS NULL
SELECT * FROM listings WHERE storage < 99999999999999999999;

-- shape: filter
-- normal: listings: price = CAST('NaN' AS DOUBLE)
SELECT * FROM listings WHERE price >= CAST('NaN' AS DOUBLE);

-- shape: filter
-- normal: listings: price > CAST('-Infinity' AS DOUBLE) AND price < CAST('Infinity' AS DOUBLE)
SELECT * FROM listings WHERE price < CAST('Infinity' AS DOUBLE) AND price > CAST('-inf' AS DOUBLE);

-- shape: filter
-- normal: listings: price IN (0.0, 0.5, 1000.0)
SELECT * FROM listings WHERE price = -0.0 OR price = 1e3 OR price = .5;

-- shape: filter
-- normal: listings: color = 'red'
SELECT * FROM listings WHERE color = 'red' OR (color = 'red' AND price < 5);

-- shape: filter
-- normal: listings: price < 5 OR storage >= 4
SELECT * FROM listings WHERE (price < 5 OR storage > 3) AND (price < 5 OR storage > 3 OR sold);

-- shape: filter
-- normal: listings: color IN ('blue', 'red') AND model IN ('a', 'b')
SELECT * FROM listings WHERE (color = 'red' OR color = 'blue') AND (model = 'a' OR model = 'b');

-- shape: filter
-- normal: listings: sold = TRUE
SELECT * FROM listings WHERE sold;

-- shape: filter
-- normal: listings: sold = FALSE
SELECT * FROM listings WHERE NOT sold AND sold != TRUE;

-- shape: filter
-- normal: listings: price < 5
SELECT * FROM listings WHERE TRUE AND (FALSE OR price < 5);

-- shape: filter
-- normal: listings: price < 5
SELECT * FROM listings WHERE NOT NULL OR price < 5;

-- Text.
-- shape: filter
-- normal: listings: model LIKE 'x%' AND model LIKE '%5' AND NOT model LIKE '%old%'
SELECT * FROM listings WHERE model LIKE 'x%' AND model LIKE '%5' AND model NOT LIKE '%old%';

-- shape: filter
-- normal: listings: model = 'x5' AND NOT color IS NULL
SELECT * FROM listings WHERE model LIKE 'x5' AND color LIKE '%';

-- shape: filter
-- normal: listings: model = '50%' OR model LIKE 'a\\_b%'
SELECT * FROM listings WHERE model LIKE '50\\%' OR model LIKE 'a!_b%' ESCAPE '!';

-- shape: filter
-- normal: listings: model RLIKE '^x[0-9]+$' AND NOT color RLIKE '\\d'
SELECT * FROM listings WHERE model RLIKE '^x[0-9]+$' AND color NOT RLIKE r'\d';

-- shape: filter
-- normal: listings: model >= 'é' OR model = 'it\'s' OR model RLIKE '(?i)X5'
SELECT * FROM listings WHERE model REGEXP '(?i)X5' OR model >= 'é' OR model = "it's";

-- Times.
-- shape: filter
-- normal: listings: day >= DATE '2013-06-02' OR day = DATE '2013-01-31'
SELECT * FROM listings WHERE day = '2013-01-31' OR day > DATE '2013-06-01';

-- shape: filter
-- normal: listings: day = DATE '2013-02-01'
SELECT * FROM listings WHERE day > TIMESTAMP '2013-01-31 12:00:00' AND day < '2013-2-2';

-- shape: filter
-- normal: listings: seen BETWEEN TIMESTAMP '2013-01-31 00:00:00' AND TIMESTAMP '2013-01-31 03:00:00.500000'
SELECT * FROM listings WHERE seen BETWEEN '2013-01-31' AND TIMESTAMP '2013-01-31T05:00:00.5+02:00';

-- shape: filter
-- normal: listings: seen >= TIMESTAMP '2013-01-31 00:00:00' AND seen != TIMESTAMP '2013-02-01 00:00:00'
SELECT * FROM listings WHERE seen >= DATE '2013-01-31' AND seen != CAST('2013-02-01 00:00:00Z' AS TIMESTAMP);

-- Open streams: an attribute has the kind it is compared with.
-- shape: filter
-- normal: events: x = 1 AND `a.b` = 'c' AND y IS NULL
SELECT * FROM events WHERE x = 1 AND `a.b` = 'c' AND y IS NULL;

-- shape: filter
-- normal: events: x >= 1 AND X >= 'a'
SELECT x, X, `unit price` AS p FROM events WHERE x >= 1 AND X >= 'a';

-- shape: filter
-- normal: events: x >= 1 OR x >= 'a'
SELECT * FROM events WHERE x >= 1 OR x >= 'a';

-- shape: filter
-- normal: events: x = 1 OR x = 'a' OR x = TRUE
SELECT * FROM events WHERE x IN (1, 'a', TRUE);

-- shape: filter
-- normal: events: flag = TRUE
SELECT events.* FROM events WHERE events.flag;

-- Joins.
-- shape: join
-- normal: stocks: per BETWEEN 45 AND 70; reviews: rating >= 6; stocks.symbol = reviews.symbol
SELECT * FROM stocks JOIN reviews USING (symbol) WHERE per BETWEEN 45 AND 70 AND rating >= 6;

-- shape: join
-- normal: s.symbol = r.symbol; s.per > 3 OR r.rating < 2
SELECT s.symbol, r.rating AS stars FROM stocks s, reviews r WHERE s.symbol = r.symbol AND (s.per > 3 OR r.rating < 2);

-- shape: join
-- normal: a: shares >= 101; a.symbol = b.symbol; a.since = b.since
SELECT a.owner, b.owner FROM owners a INNER JOIN owners b ON a.symbol = b.symbol AND a.since = b.since WHERE a.shares > 100;

-- shape: join
-- normal: reviews.symbol = stocks.symbol
SELECT * FROM stocks CROSS JOIN reviews WHERE reviews.symbol = stocks.symbol AND stocks.symbol = reviews.symbol;

-- shape: join
-- normal: reviews: public = FALSE; stocks.listed = reviews.at
SELECT * FROM stocks JOIN reviews ON listed = at AND NOT public;

-- Band joins.
-- shape: band
-- normal: s: risk > 1; r.rating - s.per >= -5 AND r.rating - s.per <= 10
SELECT s.symbol, r.id FROM stocks s JOIN reviews r ON r.rating - s.per BETWEEN -5 AND 10 WHERE s.risk > 1;

-- shape: band
-- normal: s.per - r.rating > -1 AND s.per - r.rating <= 2.5
SELECT s.symbol, r.id FROM stocks s, reviews r WHERE s.per <= r.rating + 2.5 AND s.per > r.rating - 1 AND 9 >= r.rating - s.per;

-- shape: band
-- normal: s.per - r.rating < 0
SELECT s.symbol, r.id FROM stocks s, reviews r WHERE s.per < r.rating;

-- shape: band
-- normal: s.per - r.rating >= 3 AND s.per - r.rating <= 3; s.symbol = r.symbol
SELECT s.symbol, r.id FROM stocks s, reviews r WHERE s.per = r.rating + 3 AND s.symbol = r.symbol;

-- shape: band
-- normal: r.at - s.listed >= INTERVAL '-300000000' MICROSECOND AND r.at - s.listed <= INTERVAL '93600000000' MICROSECOND
SELECT s.symbol FROM stocks s JOIN reviews r ON r.at BETWEEN s.listed - INTERVAL '5' MINUTE AND s.listed + INTERVAL '1 day 2 hours';

-- shape: band
-- normal: s.listed - o.since >= INTERVAL '-604800000000' MICROSECOND AND s.listed - o.since <= INTERVAL '604800000000' MICROSECOND
SELECT s.symbol FROM stocks s JOIN owners o ON s.listed - o.since BETWEEN -7 AND 7;

-- shape: band
-- normal: b.at - a.at >= INTERVAL '0' MICROSECOND AND b.at - a.at < INTERVAL '90000000' MICROSECOND; a.symbol = b.symbol
SELECT a.id FROM reviews a JOIN reviews b ON b.at - a.at < INTERVAL 90 SECONDS AND b.at >= a.at AND a.symbol = b.symbol;

-- Three and more tables.
-- shape: multiway
-- normal: reviews: rating > 5; owners: shares >= 10; stocks.symbol = reviews.symbol; stocks.symbol = owners.symbol
SELECT * FROM stocks JOIN reviews USING (symbol) JOIN owners USING (symbol) WHERE shares >= 10 AND rating > 5;

-- shape: multiway
-- normal: d: rating > 1; a.symbol = b.symbol; b.at = c.at; c.id = d.id
SELECT a.id FROM reviews a, reviews b, reviews c, reviews d WHERE a.symbol = b.symbol AND b.at = c.at AND c.id = d.id AND d.rating > 1;

-- Aggregates, distinct, the first k.
-- shape: extreme
-- normal: stocks: risk BETWEEN 20 AND 60
SELECT MIN(per) FROM stocks WHERE risk BETWEEN 20 AND 60;

-- shape: extreme
-- normal: every row
SELECT MAX(listed), MIN(symbol) AS first FROM stocks;

-- shape: aggregate
-- normal: stocks: sector = 'tech'
SELECT COUNT(*), COUNT(sector) AS known, SUM(per), AVG(per), MAX(risk) FROM stocks WHERE sector = 'tech';

-- shape: aggregate
-- normal: owners: shares >= 1 AND NOT since IS NULL
SELECT count(1) AS n FROM owners WHERE shares > 0 AND since IS NOT NULL;

-- shape: distinct
-- normal: stocks: risk BETWEEN 20 AND 60
SELECT DISTINCT sector FROM stocks WHERE risk BETWEEN 20 AND 60;

-- shape: topk
-- normal: stocks: risk BETWEEN 20 AND 60
SELECT * FROM stocks WHERE risk BETWEEN 20 AND 60 ORDER BY per LIMIT 10;

-- shape: topk
-- normal: every row
SELECT symbol, per AS p FROM stocks ORDER BY p DESC, stocks.risk NULLS LAST, SECTOR DESC NULLS FIRST LIMIT 3;

-- Taken, with a warning.
-- shape: filter
-- normal: listings: FALSE
-- warning: this query can never match: its conditions contradict each other
SELECT * FROM listings WHERE price = 3 AND price = 4;

-- shape: filter
-- normal: listings: FALSE
-- warning: this query can never match: its conditions contradict each other
SELECT * FROM listings WHERE color IS NULL AND color LIKE 'r%';

-- shape: filter
-- normal: listings: FALSE
-- warning: this query can never match: its conditions contradict each other
SELECT * FROM listings WHERE color = NULL;

-- shape: filter
-- normal: listings: FALSE
-- warning: this query can never match: its conditions contradict each other
SELECT * FROM listings WHERE storage = 2.5;

-- shape: filter
-- normal: listings: FALSE
-- warning: this query can never match: its conditions contradict each other
SELECT * FROM listings WHERE price < 5 AND price >= 5;

-- shape: filter
-- normal: listings: FALSE
-- warning: this query can never match: its conditions contradict each other
SELECT * FROM listings WHERE model LIKE 'a%' AND NOT model LIKE 'a%';

-- shape: filter
-- normal: events: FALSE
-- warning: this query can never match: its conditions contradict each other
SELECT * FROM events WHERE x = 1 AND x = 'a';

-- shape: band
-- normal: s.per - r.rating > 5 AND s.per - r.rating < 5
-- warning: this query can never match: its conditions contradict each other
SELECT * FROM stocks s JOIN reviews r ON s.per - r.rating > 5 AND r.rating - s.per > -5;

-- Over 256 conjunctions, so kept as clauses.
-- shape: filter
-- normal: events: (a = 1 OR b = 1) AND (c = 1 OR d = 1) AND (e = 1 OR f = 1) AND (g = 1 OR h = 1) AND (i = 1 OR j = 1) AND (k = 1 OR l = 1) AND (m = 1 OR n = 1) AND (o = 1 OR p = 1) AND (q = 1 OR r = 1)
SELECT * FROM events WHERE (a = 1 OR b = 1) AND (c = 1 OR d = 1) AND (e = 1 OR f = 1) AND (g = 1 OR h = 1) AND (i = 1 OR j = 1) AND (k = 1 OR l = 1) AND (m = 1 OR n = 1) AND (o = 1 OR p = 1) AND (q = 1 OR r = 1);

-- Options.
-- shape: filter
-- normal: every row
SELECT * FROM listings WITH (window = '10 minutes');

-- shape: extreme
-- normal: listings: color = 'red'
SELECT MAX(price) FROM listings WHERE color = 'red' WITH (Window = '1 hour 30 minutes', late = '30 seconds');

-- shape: join
-- normal: stocks: per > 5; listings.model = stocks.symbol
SELECT model, per FROM listings JOIN stocks ON model = symbol AND per > 5 WITH (window = '1 day', time = 'SEEN');

-- shape: enrich
-- normal: l: price > 5; s: risk < 2; l.model = s.symbol
SELECT l.model, s.sector FROM listings l JOIN stocks s ON l.model = s.symbol WHERE l.price > 5 AND s.risk < 2;

-- shape: streamjoin
-- normal: a: price > 5; a.color = b.color
SELECT a.model FROM listings a JOIN listings b ON a.color = b.color WHERE a.price > 5 WITH (window = '1 minute', memory = '64 MB', policy = 'heeb', alpha = 2);

-- shape: distinct
-- normal: every row
SELECT DISTINCT color FROM listings WITH (window = '250 ms');

-- shape: topk
-- normal: every row
SELECT model FROM listings ORDER BY price LIMIT 3 WITH (window = '1 week');

-- shape: deferred
-- normal: stocks.symbol = reviews.symbol
SELECT COUNT(*) FROM stocks JOIN reviews USING (symbol) WITH (refresh = 'on demand', within = '200 ms', group = 'a', group_memory = '1 GB', policy = 'adapt');

-- shape: deferred
-- normal: every row
SELECT symbol FROM stocks WITH (refresh = 'every 10 seconds');

-- shape: deferred
-- normal: every row
SELECT symbol FROM stocks ORDER BY per LIMIT 3 WITH (refresh = 'when', when = 'changes > 1000 OR age > 1 minute', check = '1 second');

-- shape: filter
-- normal: listings: (NOT (sold = TRUE) IS TRUE AND NOT (price > 5) IS TRUE) OR (NOT (sold = TRUE) IS TRUE AND NOT (model LIKE 'x%') IS TRUE)
SELECT * FROM listings WHERE NOT (sold IS TRUE) AND (price > 5 AND model LIKE 'x%') IS NOT TRUE;

-- shape: filter
-- normal: listings: price <= 5 AND sold = FALSE
SELECT * FROM listings WHERE (price > 5 OR sold) IS FALSE;

-- Groups.
-- shape: group
-- normal: stocks.symbol = reviews.symbol
SELECT MIN(per) FROM stocks JOIN reviews USING (symbol);

-- shape: group
-- normal: stocks.symbol = reviews.symbol
SELECT DISTINCT sector FROM stocks JOIN reviews USING (symbol);

-- shape: ranked
-- normal: stocks.symbol = reviews.symbol
SELECT * FROM stocks JOIN reviews USING (symbol) ORDER BY per LIMIT 5;

-- shape: group
-- normal: every row
SELECT COUNT(DISTINCT sector) FROM stocks;

-- shape: group
-- normal: every row
SELECT sector, COUNT(*) FROM stocks GROUP BY sector;

-- shape: group
-- normal: having COUNT(*) > 5
SELECT COUNT(*) FROM stocks HAVING COUNT(*) > 5;

-- shape: ranked
-- normal: every row
SELECT * FROM stocks ORDER BY per LIMIT 5 OFFSET 5;

-- shape: ranked
-- normal: every row
SELECT * FROM stocks ORDER BY per LIMIT 5, 10;

-- shape: group
-- normal: a.color = b.color
SELECT COUNT(*) FROM listings a JOIN listings b ON a.color = b.color WITH (window = '1 day');

-- shape: group
-- normal: having COUNT(*) > 5 AND AVG(per) < 3.5 AND sector LIKE 'a%'
SELECT sector AS s, COUNT(*) AS n FROM stocks GROUP BY s HAVING n > 5 AND AVG(per) < 3.5 AND s LIKE 'a%';

-- shape: group
-- normal: stocks: risk <= 5
SELECT sector, COUNT(*) FILTER (WHERE per > 5) AS high, MAX(per) FROM stocks WHERE risk <= 5 GROUP BY 1;

-- shape: group
-- normal: having COUNT(DISTINCT rating) >= 3 OR MIN(rating) IS NULL
SELECT symbol FROM reviews GROUP BY symbol HAVING COUNT(DISTINCT rating) >= 3 OR MIN(rating) IS NULL;

-- shape: extreme
-- normal: every row
SELECT MIN(DISTINCT per) FROM stocks;

-- shape: group
-- normal: r: rating > 5; s.symbol = r.symbol; having MAX(r.rating) > 7
SELECT s.sector, COUNT(*) FROM stocks s JOIN reviews r USING (symbol) WHERE r.rating > 5 GROUP BY s.sector HAVING MAX(rating) > 7;

-- shape: group
-- normal: having COUNT(*) > 5 AND COUNT(DISTINCT model) > 3
SELECT color, COUNT(*) FROM listings GROUP BY color HAVING COUNT(*) > 5 AND COUNT(DISTINCT model) > 3 WITH (window = '10 minutes');

-- shape: deferred
-- normal: every row
SELECT sector, AVG(per) FROM stocks GROUP BY sector WITH (refresh = 'on demand');

-- shape: group
-- normal: every row
SELECT COUNT(*) FILTER (WHERE per > 5) FROM stocks;

-- First rows: of each group, after others, of joins.
-- shape: ranked
-- normal: every row
SELECT symbol FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per DESC, risk) <= 3;

-- shape: ranked
-- normal: every row
SELECT symbol, per FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per) = 1;

-- shape: ranked
-- normal: every row
SELECT symbol FROM stocks QUALIFY 4 > ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per);

-- shape: ranked
-- normal: stocks: risk < 2
SELECT symbol AS s, n.per FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY sector ORDER BY per DESC) AS place FROM stocks WHERE risk < 2) AS n WHERE place <= 3;

-- shape: ranked
-- normal: s.symbol = r.symbol
SELECT r.id FROM stocks s JOIN reviews r USING (symbol) QUALIFY ROW_NUMBER() OVER (PARTITION BY s.sector ORDER BY r.rating DESC) <= 10;

-- Outer joins, subqueries, UNION ALL.
-- shape: outer
-- normal: LEFT JOIN ON s.symbol = r.symbol
SELECT s.symbol, r.rating FROM stocks s LEFT JOIN reviews r ON s.symbol = r.symbol;

-- shape: outer
-- normal: r: rating IS NULL; LEFT JOIN ON s.symbol = r.symbol
SELECT * FROM stocks s LEFT OUTER JOIN reviews r USING (symbol) WHERE r.rating IS NULL;

-- shape: outer
-- normal: r: public = TRUE; RIGHT JOIN ON s.symbol = r.symbol AND r.rating > 5 AND s.per < 50
SELECT s.symbol, r.id FROM stocks s RIGHT JOIN reviews r ON s.symbol = r.symbol AND r.rating > 5 AND s.per < 50 WHERE r.public = TRUE;

-- shape: outer
-- normal: FULL JOIN ON s.symbol = o.symbol AND o.since - s.listed >= INTERVAL '86400000000' MICROSECOND; s.per > 5 OR o.shares >= 101
SELECT s.symbol, o.owner FROM stocks s FULL OUTER JOIN owners o ON s.symbol = o.symbol AND o.since - s.listed >= INTERVAL '1' DAY WHERE s.per > 5 OR o.shares > 100;

-- shape: semijoin
-- normal: r: rating >= 6; EXISTS (SELECT 1 FROM reviews AS r WHERE r.symbol = s.symbol AND r.rating >= 6 AND s.sector = 'tech')
SELECT * FROM stocks s WHERE EXISTS (SELECT 1 FROM reviews r WHERE r.symbol = s.symbol AND rating >= 6 AND sector = 'tech');

-- shape: semijoin
-- normal: stocks: per < 50; NOT EXISTS (SELECT 1 FROM owners WHERE owners.symbol = stocks.symbol)
SELECT symbol FROM stocks WHERE per < 50 AND NOT EXISTS (SELECT * FROM owners WHERE owners.symbol = stocks.symbol);

-- shape: semijoin
-- normal: stocks: sector IN ('oil', 'tech'); reviews: rating < 3; stocks.symbol NOT IN (SELECT reviews.symbol FROM reviews WHERE reviews.rating < 3)
SELECT symbol FROM stocks WHERE symbol NOT IN (SELECT symbol FROM reviews WHERE rating < 3) AND sector IN ('tech', 'oil');

-- shape: semijoin
-- normal: stocks_2: per > 100; stocks.symbol NOT IN (SELECT stocks_2.symbol FROM stocks AS stocks_2 WHERE stocks_2.per > 100)
SELECT symbol FROM stocks WHERE NOT symbol IN (SELECT DISTINCT symbol FROM stocks WHERE per > 100);

-- shape: semijoin
-- normal: o: shares >= 6; EXISTS (SELECT 1 FROM owners); stocks.symbol IN (SELECT o.symbol FROM owners AS o WHERE o.shares > 5)
SELECT symbol FROM stocks WHERE EXISTS (SELECT 1 FROM owners) AND symbol IN (SELECT o.symbol FROM owners o WHERE o.shares > 5);

-- shape: semijoin
-- normal: b: level >= 6; NOT EXISTS (SELECT 1 FROM alarms AS b WHERE b.room = a.room AND b.level > 5)
SELECT room FROM alarms a WHERE NOT EXISTS (SELECT 1 FROM alarms b WHERE b.room = a.room AND b.level > 5) WITH (window = '5 minutes');

-- shape: union
-- normal: stocks: per > 5
SELECT symbol, per AS x FROM stocks WHERE per > 5 UNION ALL SELECT symbol, rating FROM reviews UNION ALL (SELECT s.symbol, r.rating FROM stocks s LEFT JOIN reviews r USING (symbol));

-- shape: union
-- normal: every row
SELECT model FROM listings UNION ALL SELECT symbol FROM stocks WITH (window = '10 minutes');

-- shape: semijoin
-- normal: l: price > 5; NOT EXISTS (SELECT 1 FROM listings AS l WHERE l.model = s.symbol AND l.price > 5)
SELECT s.* FROM stocks s WHERE NOT EXISTS (SELECT 1 FROM listings l WHERE l.model = s.symbol AND l.price > 5) WITH (window = '5 minutes', time = 'seen', late = '10 seconds');

-- shape: filter
-- normal: alarms: level >= 6 AND room LIKE 'k%'
SELECT DISTINCT room FROM alarms WHERE level > 5 AND room LIKE 'k%' WITH (window = '5 minutes', absent = '1 day');

-- shape: filter
-- normal: every row
SELECT DISTINCT room, level FROM alarms WITH (window = '5 minutes', absent = 'forever');

-- shape: sequence
-- normal: a: level <= 2; b: level >= 8; a.room = b.room
SELECT a.room, a.level AS low, b.level AS high FROM alarms a FOLLOWED BY alarms b ON a.room = b.room WITHIN '5 minutes' WHERE a.level < 3 AND b.level > 7;

-- shape: sequence
-- normal: a: sold = FALSE; b: sold = TRUE; a.model = b.model; b.model = c.room
SELECT c.room FROM listings AS a FOLLOWED BY listings AS b USING (model) FOLLOWED BY alarms AS c ON b.model = c.room WITHIN '1 hour' WHERE a.sold = FALSE AND b.sold = TRUE;

-- Expressions.
-- shape: filter
-- normal: events: (item.brand = other.brand) = TRUE
SELECT * FROM events WHERE item.brand = other.brand;

-- shape: filter
-- normal: listings: (upper(model)) = 'X5'
SELECT * FROM listings WHERE upper(model) = 'X5';

-- shape: filter
-- normal: listings: (price + 1) < 5
SELECT * FROM listings WHERE price + 1 < 5;

-- shape: filter
-- normal: stocks: (per < risk) = TRUE
SELECT * FROM stocks WHERE per < risk;

-- shape: filter
-- normal: listings: price = 5
SELECT * FROM listings WHERE price <=> 5;

-- shape: filter
-- normal: listings: (CASE WHEN sold THEN price ELSE 0 END) > 5
SELECT * FROM listings WHERE CASE WHEN sold THEN price ELSE 0 END > 5;

-- shape: filter
-- normal: listings: (5 IN (price, storage)) = TRUE
SELECT * FROM listings WHERE 5 IN (price, storage);

-- shape: band
-- normal: (s.per * 2) - r.rating < 0
SELECT * FROM stocks s, reviews r WHERE s.per * 2 < r.rating;

-- shape: filter
-- normal: every row
SELECT upper(symbol) FROM stocks;

-- shape: filter
-- normal: every row
SELECT per + 1 FROM stocks;

-- shape: extreme
-- normal: every row
SELECT MIN(per + 1) FROM stocks;

-- shape: topk
-- normal: every row
SELECT * FROM stocks ORDER BY per + risk LIMIT 5;

-- shape: filter
-- normal: stocks: NOT (symbol = 'a') IS TRUE
SELECT * FROM stocks WHERE symbol IS DISTINCT FROM 'a';

-- shape: filter
-- normal: stocks: symbol = 'ab'
SELECT * FROM stocks WHERE symbol = 'a' 'b';

-- shape: ranked
-- normal: every row
SELECT * FROM stocks QUALIFY ROW_NUMBER() OVER (PARTITION BY per + 1 ORDER BY per) <= 3;

-- shape: filter
-- normal: listings: (price * storage) > 200
SELECT model, price * storage AS total, upper(color) AS c FROM listings WHERE price * storage > 100 + 2 * 50;

-- shape: filter
-- normal: listings: (price >= storage AND price <= storage * 2) = TRUE AND (lower(model)) IN ('x5', 'x6')
SELECT * FROM listings WHERE price BETWEEN storage AND storage * 2 AND lower(model) IN ('x5', 'x6');

-- shape: filter
-- normal: listings: (date_trunc('month', seen)) = TIMESTAMP '2024-05-01 00:00:00' AND (year(day)) >= 2024
SELECT * FROM listings WHERE date_trunc('month', seen) = TIMESTAMP '2024-05-01 00:00:00' AND year(day) >= 2024;

-- shape: filter
-- normal: listings: model LIKE 'x\\%%' AND (concat(model, color)) = 'x5red' AND (TRY_CAST(color AS BIGINT)) IS NULL
SELECT * FROM listings WHERE startswith(model, 'x%') AND model || color = 'x5red' AND TRY_CAST(color AS BIGINT) IS NULL;

-- shape: filter
-- normal: listings: NOT ((price > storage) = TRUE) IS TRUE AND (seen > day + (INTERVAL '1 DAY 7200000000 MICROSECOND')) = TRUE
SELECT * FROM listings WHERE seen > day + INTERVAL '1 day 2 hours' AND (price > storage) IS NOT TRUE;

-- shape: filter
-- normal: events: (a.b * a.c) > 5 AND (cidr_contains('10.0.0.0/8', source.ip)) = TRUE
SELECT * FROM events WHERE a.b * a.c > 5 AND cidr_contains('10.0.0.0/8', source.ip);

-- shape: group
-- normal: having COUNT(*) > 1
SELECT year(listed) AS y, COUNT(*) AS n, SUM(per * risk) AS s FROM stocks GROUP BY year(listed) HAVING COUNT(*) > 1;

-- shape: topk
-- normal: every row
SELECT symbol, per / risk AS ratio FROM stocks ORDER BY per / risk DESC LIMIT 3;

-- shape: extreme
-- normal: stocks: (per > risk) = TRUE
SELECT MAX(per - risk) AS spread FROM stocks WHERE per > risk;

-- shape: join
-- normal: s: (per > risk) = TRUE; (lower(s.symbol)) = (lower(r.symbol))
SELECT s.symbol, r.rating * 2 AS twice FROM stocks s JOIN reviews r ON lower(s.symbol) = lower(r.symbol) WHERE s.per > s.risk;

-- Parts of a condition over the cap of normal forms are shared columns.
-- shape: filter
-- normal: events: held('(a = 1 AND b = 1) OR (c = 1 AND d = 1)') = TRUE AND held('(a = 2 AND b = 2) OR (c = 2 AND d = 2)') = TRUE AND held('(e = 1 AND f = 1) OR (g = 1 AND h = 1) OR (i = 1 AND j = 1) OR (k = 1 AND l = 1) OR (m = 1 AND n = 1) OR (o = 1 AND p = 1) OR (q = 1 AND r = 1) OR (s = 1 AND t = 1)') = TRUE AND held('u = 1 OR u1 = 1') = TRUE AND held('v = 1 OR v1 = 1') = TRUE AND held('w = 1 OR w1 = 1') = TRUE AND held('x = 1 OR x1 = 1') = TRUE AND held('y = 1 OR y1 = 1') = TRUE
SELECT * FROM events WHERE (a = 1 AND b = 1 OR c = 1 AND d = 1) AND (a = 2 AND b = 2 OR c = 2 AND d = 2) AND (e = 1 AND f = 1 OR g = 1 AND h = 1 OR i = 1 AND j = 1 OR k = 1 AND l = 1 OR m = 1 AND n = 1 OR o = 1 AND p = 1 OR q = 1 AND r = 1 OR s = 1 AND t = 1) AND (u = 1 OR u1 = 1) AND (v = 1 OR v1 = 1) AND (w = 1 OR w1 = 1) AND (x = 1 OR x1 = 1) AND (y = 1 OR y1 = 1);

-- Numbers with fixed digits.
CREATE TABLE bills (id BIGINT PRIMARY KEY, amount DECIMAL(9,2) NOT NULL DEFAULT 0.5, share DEC(5,4), whole NUMERIC);

-- shape: filter
-- normal: bills: amount BETWEEN 5.01 AND 19.99 AND NOT share IS NULL AND whole = 12
SELECT * FROM bills WHERE amount < 19.999 AND amount > 5 AND share != 0.12345 AND whole = 12.0;

-- shape: filter
-- normal: bills: amount IN (1.00, 2.50)
SELECT * FROM bills WHERE amount IN (1, 2.50, 2.505) OR amount > 1234567890123456.789;

-- shape: filter
-- normal: bills: (amount * 1.19) >= 100.0001 AND (amount > share * 2) = TRUE AND (round(amount, 1)) = 2.6
SELECT * FROM bills WHERE amount * 1.19 > 100 AND amount > share * 2 AND round(amount, 1) = CAST('2.55' AS DECIMAL(5,1));

-- shape: aggregate
-- normal: bills: amount BETWEEN 0.02 AND 99.99
SELECT SUM(amount) AS s, AVG(share) AS a FROM bills WHERE amount BETWEEN 0.015 AND 99.99;

-- shape: join
-- normal: a.amount = b.share; a.id = b.whole
SELECT a.id FROM bills a JOIN bills b ON a.amount = b.share AND a.id = b.whole;

-- Conditions that compute with columns of several tables.
-- shape: multiway
-- normal: s.symbol = r.symbol; r.symbol = o.symbol; (s.per < r.rating) = TRUE
SELECT * FROM stocks s, reviews r, owners o WHERE s.symbol = r.symbol AND r.symbol = o.symbol AND s.per < r.rating;

-- shape: join
-- normal: s.symbol = r.symbol; (s.per * r.rating) > 5 OR s.per = 1
SELECT * FROM stocks s JOIN reviews r ON s.symbol = r.symbol WHERE s.per * r.rating > 5 OR s.per = 1;

-- shape: join
-- normal: s.symbol = r.symbol; (concat(s.sector, r.id)) LIKE 'oil%' AND (s.per + r.rating) >= 1 AND (s.per + r.rating <= s.risk) = TRUE
SELECT * FROM stocks s JOIN reviews r USING (symbol) WHERE concat(s.sector, r.id) LIKE 'oil%' AND s.per + r.rating BETWEEN 1 AND s.risk;

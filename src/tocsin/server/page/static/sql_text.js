// SQL as coloured pieces: [kind, text], where kinds are the classes k, s, n, f and c of style.css.
const KEYWORDS = new Set((
  "SELECT FROM WHERE AND OR NOT IN IS NULL LIKE ILIKE RLIKE REGEXP BETWEEN JOIN LEFT RIGHT FULL OUTER INNER ON USING AS " +
  "ORDER GROUP BY HAVING LIMIT OFFSET ASC DESC DISTINCT UNION ALL EXISTS WITH CREATE DROP TABLE STREAM PRIMARY KEY RETAIN " +
  "STRING BIGINT DOUBLE BOOLEAN TIMESTAMP DATE TRUE FALSE QUALIFY OVER PARTITION FILTER NULLS FIRST LAST PAYLOAD ESCAPE"
).split(" "));
const PIECES = /(--[^\n]*|\/\*[^]*?(?:\*\/|$))|('(?:[^']|'')*'?)|("(?:[^"]|"")*"?)|(\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b)|([A-Za-z_]\w*)(?=(\s*\()?)|([^])/g;

export function pieces(text) {
  const found = [];
  for (const [whole, comment, string, , number, word, call] of text.matchAll(PIECES)) {
    let kind = "";
    if (comment) kind = "c";
    else if (string) kind = "s";
    else if (number) kind = "n";
    else if (word && KEYWORDS.has(word.toUpperCase())) kind = "k";
    else if (word && call !== undefined) kind = "f";
    const last = found.at(-1);
    if (last && last[0] === kind && !kind) last[1] += whole;
    else found.push([kind, whole]);
  }
  return found;
}

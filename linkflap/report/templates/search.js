"use strict";
/* The search over events: words and "phrases" that a row has, name:value for what it is about, and two such searches joined by
   "followed by" or "not followed by". Pure: rows in, rows out. */
const eventSearch = (() => {
  const NAMES = ["kind", "cluster", "link", "partition", "client", "operation", "fault", "broker", "process"];

  // A word has its letters anywhere in the row; `client:relay-*` is one that begins so, `cluster:A` is A alone.
  const tokens = (text) => (text.toLowerCase().match(/(?:[a-z]+:)?"[^"]*"?|[^\s"]+/g) || []).map((raw) => {
    const colon = raw.indexOf(":"), name = raw.slice(0, colon), quoted = raw.includes('"');
    if (colon > 0 && NAMES.includes(name) && raw.length > colon + 1) return { name, value: raw.slice(colon + 1).replaceAll('"', "") };
    return { word: raw.replaceAll('"', ""), quoted };
  });
  const valueOf = (row, name) => (name === "kind" ? row.kind : row.of && row.of[name]);
  const has = (row, each) => {
    if (!each.name) return row.searched.includes(each.word);
    const value = valueOf(row, each.name);
    if (value === undefined) return false;
    return each.value.endsWith("*") ? value.toLowerCase().startsWith(each.value.slice(0, -1)) : value.toLowerCase() === each.value;
  };
  const matching = (rows, wanted) => rows.filter((row) => wanted.every((each) => has(row, each)));

  // X (not) followed by Y; a question that is not written to its end is the words that are there.
  const parse = (text) => {
    const found = tokens(text), is = (n, word) => found[n] && found[n].word === word && !found[n].quoted;
    const at = found.findIndex((_, n) => is(n, "followed") && is(n + 1, "by"));
    if (at < 0) return { first: found, then: null, not: false };
    const not = at > 0 && is(at - 1, "not");
    return { first: found.slice(0, not ? at - 1 : at), then: found.slice(at + 2), not };
  };

  const same = (one, other) => Object.keys(one).every((name) => !(name in other) || one[name] === other[name]);
  // A marker belongs to one transaction in one partition, whatever the clocks say; all else is later.
  const follows = (one, other) => one !== other && same(one.of, other.of) &&
    (other.ends ? one.of.operation === other.of.operation && one.of.partition === other.of.partition : one.at !== null && other.at !== null && other.at >= one.at);

  return (rows, text) => {
    const { first, then, not } = parse(text);
    if (!then || !then.length) return { rows: matching(rows, first).map((row) => ({ row, then: null })), of: null };
    // What checks found is no event: only what happened is followed by something.
    const happened = rows.filter((row) => row.of && row.kind !== "anomaly" && row.kind !== "allowed");
    const ones = matching(happened, first), others = matching(happened, then), ends = new Map(), rest = [];
    for (const row of others) if (row.ends) ends.set(`${row.of.operation} ${row.of.partition}`, row); else rest.push(row);
    rest.sort((a, b) => a.at - b.at);
    const found = ones.map((row) => {
      const end = ends.get(`${row.of.operation} ${row.of.partition}`);
      return { row, then: (end && follows(row, end) ? end : rest.find((other) => follows(row, other))) || null };
    });
    return { rows: found.filter((each) => !each.then === not), of: ones.length };
  };
})();

// Whose memories are in this database, and how many?
// Needs no parameter. Each line is a space: the graph of one user (or agent, or run) of one ledger.
// Look at the last column: it is the line to paste next, so that the other questions are about that space.
CYPHER 5
MATCH (n:Memory|Entity)
WHERE n.space IS NOT NULL
WITH n.space AS space, n.ledger AS ledger,
     sum(CASE WHEN n:Memory THEN 1 ELSE 0 END) AS memories,
     sum(CASE WHEN n:Entity THEN 1 ELSE 0 END) AS entities,
     max(n.date) AS newest
RETURN substring(space, size(ledger) + 1) AS space, memories, entities, toString(date(newest)) AS newest, ledger,
       ":param user => '" + space + "'" AS next
ORDER BY memories DESC
LIMIT 50

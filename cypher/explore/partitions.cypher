// Whose memories are in this database, and how many?
// Needs no parameter. Each line is a partition: the graph of one user (or agent, or run) of one ledger.
// Look at the last column: it is the line to paste next, so that the other questions are about that partition.
CYPHER 5
MATCH (n:Memory|Entity)
WHERE n.partition IS NOT NULL
WITH n.partition AS partition, n.ledger AS ledger,
     sum(CASE WHEN n:Memory THEN 1 ELSE 0 END) AS memories,
     sum(CASE WHEN n:Entity THEN 1 ELSE 0 END) AS entities,
     max(n.date) AS newest
RETURN substring(partition, size(ledger) + 1) AS partition, memories, entities, toString(date(newest)) AS newest, ledger,
       ":param user => '" + partition + "'" AS next
ORDER BY memories DESC
LIMIT 50

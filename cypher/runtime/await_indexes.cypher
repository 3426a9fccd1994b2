// Waits until the indexes are filled.
CYPHER 5
CALL db.awaitIndexes(300)

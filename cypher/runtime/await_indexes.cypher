// Waits until the indexes are populated.
CYPHER 5
CALL db.awaitIndexes(300)

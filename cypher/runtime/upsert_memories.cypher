// Writes memories, unless the stored version is newer. Returns the ids of those written, and
// of these the ones that existed before.
CYPHER 5
UNWIND $rows AS row
MERGE (m:Memory {ledger: $ledger, id: row.id})
WITH m, row, m.version AS before
WHERE coalesce(before <= row.version, true)
SET m += row,
    m.date = datetime({epochMillis: row.at / 1000}),
    m.until = CASE WHEN row.valid_to IS NOT NULL THEN datetime({epochMillis: row.valid_to / 1000}) END
RETURN collect(row.id) AS written, collect(CASE WHEN before IS NOT NULL THEN row.id END) AS known

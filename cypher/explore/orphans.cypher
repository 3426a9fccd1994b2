// Which memories does no name lead to?
// :param user => 'demo'
// They name nobody and nothing but who says them. A search finds them by their meaning, their words and their place in
// the conversation only; a name in them that is missing here was not recognised.
CYPHER 5
MATCH (m:Memory)
WHERE (m.partition = $user OR m.partition ENDS WITH '/user:' + $user) AND m.text IS NOT NULL
  AND NOT EXISTS {
    MATCH (m)-[r:MENTIONS]->(e:Entity)
    WHERE r.rank IS NOT NULL AND toLower(e.name) <> toLower(coalesce(m.speaker, ''))
  }
RETURN toString(date(m.date)) AS date, m.speaker AS speaker, m.text AS memory, m.id AS id
ORDER BY m.at DESC
LIMIT 50

// Which relations has nobody spoken of for a long time?
// :param user => 'demo'
// :param days => 60
// The days are counted back from the newest memory. What is old and was said once only may be no longer so.
CYPHER 5
MATCH (m:Memory)
WHERE m.partition = $user OR m.partition ENDS WITH '/user:' + $user
WITH max(m.at) AS now
MATCH (a:Entity)-[r:RELATES_TO]->(b:Entity)
WHERE (a.partition = $user OR a.partition ENDS WITH '/user:' + $user)
  AND r.invalid_at IS NULL AND r.at < now - $days * 86400000000
RETURN a.name AS subject, r.predicate AS predicate, b.name AS object,
       toString(date(datetime({epochMillis: r.at / 1000}))) AS last, (now - r.at) / 86400000000 AS `days ago`,
       size(r.memory_ids) AS memories, r.fact AS fact
ORDER BY r.at
LIMIT 50

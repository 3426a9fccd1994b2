// What happened to somebody (or something), in the order of time?
// :param user => 'demo'
// :param name => 'Bela Moravec'
// A part of the name will do. Look at "until": what has a date there held only so long, and "replaced by" says what
// came after it.
CYPHER 5
MATCH (named:Entity)
WHERE (named.partition = $user OR named.partition ENDS WITH '/user:' + $user)
  AND ' ' + toLower(named.name) CONTAINS ' ' + toLower($name)
WITH named
ORDER BY toLower(named.name) = toLower($name) DESC, COUNT { (named)<-[:MENTIONS]-() } DESC LIMIT 1
MATCH (named)-[:SAME_AS*0..3]-(e)
WITH DISTINCT e
MATCH (e)<-[:MENTIONS]-(m:Memory)
WITH DISTINCT m ORDER BY m.at DESC LIMIT 100
OPTIONAL MATCH (after:Memory)-[:REPLACES]->(m)
RETURN toString(date(m.date)) AS date, m.speaker AS speaker, m.text AS memory, toString(date(m.until)) AS until,
       after.text AS `replaced by`, m.id AS id
ORDER BY m.at
LIMIT 100

// What is a memory based on: what was said around it, what it was drawn from, what it replaced or took in?
// :param user => 'demo'
// :param memory => 'Hannah Osei'
// "memory" is its id, or words of it. Follow NEXT for the order in which things were said, DRAWN_FROM to the sources of
// a summary. The types are compared as texts: a database warns of those that it has not seen yet.
CYPHER 5
MATCH (m:Memory)
WHERE (m.partition = $user OR m.partition ENDS WITH '/user:' + $user)
  AND (m.id = $memory OR toLower(m.text) CONTAINS toLower($memory))
WITH m ORDER BY m.id = $memory DESC, m.at DESC LIMIT 1
OPTIONAL MATCH before = (:Memory)-[:NEXT*1..3]->(m)
OPTIONAL MATCH after = (m)-[:NEXT*1..2]->(:Memory)
OPTIONAL MATCH sources = (m)-[links*1..3]->(:Memory)
  WHERE all(link IN links WHERE type(link) IN ['DRAWN_FROM', 'REPLACES', 'COMPRESSES', 'ABSTRACTS'])
OPTIONAL MATCH replaced = (:Memory)-[by]->(m) WHERE type(by) IN ['REPLACES', 'COMPRESSES', 'ABSTRACTS']
RETURN m, before, after, sources, replaced
LIMIT 30

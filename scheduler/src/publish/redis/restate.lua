-- Rewrites the hashes of sites, whatever they held, unless another writer came first.
-- KEYS: stream, then a hash for each site.
-- ARGV: id that the stream must end with, then for each site: state, desired, term, seq, since_ms,
--       power_percent.
-- Answers 1, or the id that the stream ends with instead.
local ends_with = stream_end(KEYS[1])
if ends_with ~= ARGV[1] then
  return ends_with
end
for i = 2, #KEYS do
  local at = 2 + (i - 2) * 6
  local known = redis.call('HMGET', KEYS[i], 'term', 'seq')
  redis.call('HSET', KEYS[i], 'state', ARGV[at], 'desired', ARGV[at + 1], 'term', ARGV[at + 2],
    'seq', ARGV[at + 3], 'since_ms', ARGV[at + 4], 'power_percent', ARGV[at + 5])
  if known[1] ~= ARGV[at + 2] or known[2] ~= ARGV[at + 3] then
    -- Those that are there belong to another envelope.
    redis.call('HSET', KEYS[i], 'event', '', 'cause', '', 'deadline_ms', '', 'power_event', '',
      'power_deadline_ms', '')
  end
end
return 1

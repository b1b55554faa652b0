-- Appends one envelope: stream, site hash, wake-up; all of it or nothing.
-- KEYS: stream, site hash.
-- ARGV: channel, id of the entry, id that the stream must end with, longest stream,
--       id of the envelope, its JSON, its term, its sequence, then fields of the hash.
-- Answers 1 (written), 0 (it stands there already), or the id that the stream ends with instead.

-- Decimal numbers without leading zeros: as text, so that 64 bits need no floating point.
local function above(a, b)
  if #a ~= #b then
    return #a > #b
  end
  return a > b
end

local ends_with = stream_end(KEYS[1])
if ends_with ~= ARGV[3] then
  local entry = redis.call('XRANGE', KEYS[1], ARGV[2], ARGV[2])[1]
  if entry and entry[2][1] == 'id' and entry[2][2] == ARGV[5] then
    return 0
  end
  return ends_with
end

-- Read before the first write: a key of the wrong type ends the script here, with nothing done.
local known = redis.call('HMGET', KEYS[2], 'term', 'seq')
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[4], ARGV[2], 'id', ARGV[5], 'envelope', ARGV[6])

-- While history is published again, the hash does not go back through it.
local newer = known[1] and known[2]
  and (above(known[1], ARGV[7]) or (known[1] == ARGV[7] and above(known[2], ARGV[8])))
if not newer then
  redis.call('HSET', KEYS[2], 'term', ARGV[7], 'seq', ARGV[8], unpack(ARGV, 9))
end
redis.call('PUBLISH', ARGV[1], ARGV[6])
return 1

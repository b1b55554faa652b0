-- Where a stream ends: the highest id it ever took, which is also the one that fences.
local function stream_end(key)
  if redis.call('EXISTS', key) == 0 then
    return '0-0'
  end
  local info = redis.call('XINFO', 'STREAM', key)
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then
      return info[i + 1]
    end
  end
  return '0-0'
end


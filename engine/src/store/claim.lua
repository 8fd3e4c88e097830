-- Makes a job belong to a newer engine: from now on commits of lower epochs are refused, also of a job that is listed
-- and has no keys yet, so that an engine that was deposed meanwhile cannot bring it in.
-- KEYS  1 state, then the other keys of the job   ARGV  1 epoch  2 seconds for which a fence without a job stays
--       3 kinds: a letter for each key, h for a hash and s for a stream
--       4 crashes in a row after which a job is set aside  5 schema that this engine writes
-- Returns {'ok', seq}, {'none'}, {'fenced', epoch}, {'damaged', what}, {'crashing', times,
-- the last panic}, or {'newer', schema}: by a later release, and nothing was changed.
local found = redis.call('TYPE', KEYS[1]).ok
if found ~= 'hash' and found ~= 'none' then return {'damaged', 'its state key holds a ' .. found} end
local stored = redis.call('HMGET', KEYS[1], 'epoch', 'seq', 'schema')
if (tonumber(stored[3] or '') or 0) > tonumber(ARGV[5]) then return {'newer', stored[3]} end
if not stored[2] then
  if found == 'hash' and redis.call('HEXISTS', KEYS[1], 'spec') == 1 then
    return {'damaged', 'its state has no seq'}
  end
  if (tonumber(stored[1] or '') or 0) > tonumber(ARGV[1]) then return {'fenced', stored[1]} end
  -- Numbers of the engine that deleted it say nothing about those of this one.
  redis.call('HDEL', KEYS[1], 'gone')
  redis.call('HSET', KEYS[1], 'epoch', ARGV[1])
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  -- A submission writes all of them at once, and they expire at once.
  if redis.call('EXISTS', unpack(KEYS, 2)) > 0 then return {'damaged', 'its state is gone'} end
  return {'none'}
end
local epoch, seq = tonumber(stored[1] or ''), tonumber(stored[2])
if not epoch then return {'damaged', 'its epoch is `' .. tostring(stored[1]) .. '`'} end
if not seq then return {'damaged', 'its seq is `' .. stored[2] .. '`'} end
if epoch > tonumber(ARGV[1]) then return {'fenced', stored[1]} end
-- The first commit that writes such a key would be refused, and with it the whole engine.
for i = 2, #KEYS do
  found = redis.call('TYPE', KEYS[i]).ok
  local wanted = string.sub(ARGV[3], i, i) == 's' and 'stream' or 'hash'
  if found ~= 'none' and found ~= wanted then return {'damaged', KEYS[i] .. ' holds a ' .. found} end
end
-- A first write that takes no memory: at its limit Redis refuses no later one of this script.
redis.call('HDEL', KEYS[1], '')
-- What this engine writes from now on, an older one cannot read.
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'schema', ARGV[5])
local crashes = redis.call('HMGET', KEYS[1], 'crashes', 'crash')
if (tonumber(crashes[1] or '') or 0) >= tonumber(ARGV[4]) then
  return {'crashing', crashes[1], crashes[2] or ''}
end
return {'ok', stored[2]}
